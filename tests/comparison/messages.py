"""Requests as values without ids of one broker, and answers in a form that can be compared.

Brokers choose member ids and producer ids at random. Each id is replaced by a symbol: what the broker put in
front of the UUID, and a number by order of appearance. `Ids` holds the symbols of one broker.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.protocol.apis import ApiKey
from klog.protocol.fetch_request import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from klog.protocol.fetch_response import decode_fetch_response
from klog.protocol.messages import build, decode_response, encode_request, encode_response, request_class
from klog.protocol.produce_request import ProduceRequest, encode_produce_request
from klog.protocol.produce_response import decode_produce_response
from tests.entity_structs import request_struct

_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_RANDOM_ID: Final = re.compile(rf"(.*)-{_UUID}", re.DOTALL)
_SYMBOL: Final = re.compile(r".*-#\d+", re.DOTALL)
_NO_PRODUCER: Final = -1
# What differs between any two brokers: ports, and times.
_APART: Final = {"throttle_time", "throttle_time_ms", "port", "last_timestamp"}
_NOW_MS: Final = 1_700_000_000_000
_PRODUCER_ID: Final = "producer_id"
# For people: only whether there is a message is compared, and the ones that mean none.
_START: Final = "transaction_start_time"
_ABORTED: Final = "aborted_transactions"
_MESSAGE: Final = "error_message"
_NO_MESSAGES: Final = (None, "", "NONE")


@dataclass(frozen=True)
class Part:
    """A struct in a request, by the name that Kafka's schema gives it."""

    name: str
    values: dict[str, Any]


@dataclass(frozen=True)
class Ask:
    """A request. `values` may hold fields that its version does not have."""

    api: ApiKey
    version: int
    values: dict[str, Any]

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={_shown(value)}" for name, value in self.values.items())
        return f"{self.api.title} {self.version}: {shown}"


def _shown(value: object) -> str:
    if isinstance(value, Part):
        return f"({', '.join(f'{name}={_shown(each)}' for name, each in value.values.items())})"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_shown, value))}]"
    text = repr(value)
    return text if len(text) < 100 else f"{text[:80]}... ({len(text)} characters)"


@dataclass
class Ids:
    """The random ids of one broker, and their symbols."""

    _symbols: dict[object, str] = field(default_factory=dict)
    _ids: dict[str, Any] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def symbol(self, prefix: str, identity: object) -> str:
        """The symbol of an id; a new one if the id is new."""
        if identity not in self._symbols:
            self._counts[prefix] = self._counts.get(prefix, 0) + 1
            symbol = f"{prefix}-#{self._counts[prefix]}"
            self._symbols[identity], self._ids[symbol] = symbol, identity
        return self._symbols[identity]

    def body(self, ask: Ask) -> bytes:
        """The request for this broker, without its header."""
        if ask.api is ApiKey.PRODUCE:
            return self._produce(ask)
        if ask.api is ApiKey.FETCH:
            return _fetch(ask)
        return encode_request(self._entity(ask))

    def _produce(self, ask: Ask) -> bytes:
        """One batch of one record; `producer_id` and others are the batch's."""
        asked = {name: self._value(ask, each) for name, each in ask.values.items()}
        topic, partition, name = asked.pop("topic"), asked.pop("partition"), asked.pop("transactional_id")
        batch = build_batch([RecordData(0, _NOW_MS, b"k", b"v")], BatchFields(**asked))
        topics = [(topic, [(partition, memoryview(batch))])]
        return b"".join(encode_produce_request(ask.version, ProduceRequest(name, -1, 30_000, topics)))

    def _entity(self, ask: Ask) -> Any:
        return self._built(ask, request_class(ask.api, ask.version), ask.values)

    def _built(self, ask: Ask, entity_type: type, values: dict[str, Any]) -> Any:
        # A field that the version does not have may be of a struct that it does not have.
        names = {each.name for each in dataclasses.fields(entity_type)}
        known = {name: self._value(ask, each) for name, each in values.items() if name in names}
        return build(entity_type, **known)

    def _value(self, ask: Ask, value: Any) -> Any:
        if isinstance(value, str):
            # A symbol of another broker's ids would be a different request: it must be known here.
            return self._ids[value] if _SYMBOL.fullmatch(value) else value
        if isinstance(value, tuple):
            return tuple(self._value(ask, each) for each in value)
        if isinstance(value, Part):
            return self._built(ask, request_struct(ask.api, ask.version, value.name), value.values)
        return value

    def comparable(self, value: Any, name: str = "") -> Any:
        """An answer with symbols for ids, without times, lists in a fixed order."""
        if name == _START and value is not None:
            return bool(value.timestamp())
        if name == _ABORTED and value is not None:
            return [(self.symbol("producer", each[0]), each[1]) for each in value]
        if hasattr(value, "_asdict"):
            # Produce and Fetch. klog says more of records that it refuses.
            left_out = {*_APART, _MESSAGE, "record_errors"}
            named = value._asdict().items()
            return {key: self.comparable(each, key) for key, each in named if key not in left_out}
        if dataclasses.is_dataclass(value):
            fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
            return {key: self.comparable(each, key) for key, each in fields.items() if key not in _APART}
        if isinstance(value, memoryview):
            return f"{len(value)} bytes"
        if isinstance(value, tuple | list):
            # Symbols of producers that appear together are in the order of their ids.
            ordered = sorted(value, key=lambda each: getattr(each, _PRODUCER_ID, 0))
            return sorted((self.comparable(each) for each in ordered), key=repr)
        if name == _MESSAGE and value not in _NO_MESSAGES:
            return "a message"
        if isinstance(value, str):
            found = _RANDOM_ID.fullmatch(value)
            return value if found is None else self.symbol(found[1], value)
        if name == _PRODUCER_ID and value != _NO_PRODUCER:
            return self.symbol("producer", int(value))
        if isinstance(value, bool | bytes | timedelta | datetime) or value is None:
            return value
        return int(value) if isinstance(value, int) else value


def _fetch(ask: Ask) -> bytes:
    """All records of a partition, as a consumer of an isolation level gets them."""
    asked = ask.values
    part = FetchPartition(asked["partition"], -1, asked["offset"], -1, -1, 1 << 20)
    topics = [FetchTopic(asked["topic"], None, [part])]
    wanted = FetchRequest(0, 0, 1 << 20, asked["isolation"], topics)
    return encode_fetch_request(ask.version, wanted)


def read_answer(ask: Ask, body: memoryview) -> Any:
    """The answer to a request."""
    if ask.api is ApiKey.PRODUCE:
        return decode_produce_response(ask.version, body)
    if ask.api is ApiKey.FETCH:
        return decode_fetch_response(ask.version, body)
    answer = decode_response(ask.api, ask.version, body)
    # So equal entities are equal bytes.
    assert encode_response(answer) == bytes(body), f"the answer has unknown fields: {ask}"
    return answer
