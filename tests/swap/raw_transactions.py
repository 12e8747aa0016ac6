"""A transactional producer whose broker may be replaced between any two of its requests.

It sends single requests, again as long as the broker asks for that, and keeps its producer id, epoch and
sequence itself. There is one broker, so it looks up no coordinator but to create the internal topics.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.protocol.apis import ApiKey
from klog.protocol.channel import Channel
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ChannelError
from klog.protocol.messages import build, request_class
from klog.protocol.produce_request import ProduceRequest, encode_produce_request
from klog.protocol.produce_response import decode_produce_response
from tests.entity_structs import request_struct
from tests.waiting import eventually

_PRODUCE_VERSION = 9
_TRANSACTION = 1
# A broker that starts, or whose markers are on the way, asks for the same request once more.
_AGAIN = frozenset(
    (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    )
)


def ask(bootstrap: str, api: ApiKey, version: int, /, **values: Any) -> Any:
    """The answer to one request, over a connection of its own. Raises ChannelError."""
    with _channel(bootstrap) as channel:
        return channel.send(build(request_class(api, version), **values))


def _channel(bootstrap: str) -> Channel:
    host, _, port = bootstrap.partition(":")
    return Channel(host, int(port))


def settled(attempt: Callable[[], ErrorCode]) -> ErrorCode:
    """The first answer that does not ask for another attempt."""
    found: list[ErrorCode] = []

    def answered() -> bool:
        try:
            error = ErrorCode(attempt())
        except ChannelError:
            return False
        found.append(error)
        return error not in _AGAIN

    eventually(answered)
    return found[-1]


class RawProducer:
    """One transactional id. `bootstrap` may be changed at any time.

    Transactions live longer by default than a broker of a busy machine needs to start.
    """

    def __init__(self, bootstrap: str, name: str, timeout_ms: int = 600_000) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.producer_id = self.epoch = -1
        self._timeout = timedelta(milliseconds=timeout_ms)
        self._sequences: dict[str, int] = {}

    def _ask(self, api: ApiKey, version: int, /, **values: Any) -> Any:
        return ask(self.bootstrap, api, version, **values)

    @property
    def _identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def init(self) -> tuple[int, int]:
        """Fence older producers; the new producer id and epoch."""

        def attempt() -> ErrorCode:
            find = self._ask(ApiKey.FIND_COORDINATOR, 3, key=self.name, key_type=_TRANSACTION)
            if find.error_code:
                return find.error_code
            answer = self._ask(
                ApiKey.INIT_PRODUCER_ID, 4, transactional_id=self.name, transaction_timeout=self._timeout
            )
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            return answer.error_code

        assert settled(attempt) is ErrorCode.NONE
        self._sequences.clear()
        return self.producer_id, self.epoch

    def begin(self, *topics: str) -> None:
        """Add partition 0 of these topics to the transaction."""
        added = request_struct(ApiKey.ADD_PARTITIONS_TO_TXN, 3, "AddPartitionsToTxnTopic")

        def attempt() -> ErrorCode:
            answer = self._ask(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                3,
                **{f"v3_and_below_{field}": value for field, value in self._identity.items()},
                v3_and_below_topics=tuple(build(added, name=topic, partitions=(0,)) for topic in topics),
            )
            results = answer.results_by_topic_v3_and_below
            (error,) = {each.results_by_partition[0].partition_error_code for each in results}
            return error

        assert settled(attempt) is ErrorCode.NONE

    def send(self, topic: str, value: bytes, *, acks: int = -1) -> ErrorCode:
        """Write a record to partition 0."""
        sequence = self._sequences.get(topic, 0)
        fields = BatchFields(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = build_batch([RecordData(0, time.time_ns() // 1_000_000, None, value)], fields)

        def attempt() -> ErrorCode:
            request = ProduceRequest(self.name, acks, 30_000, [(topic, [(0, memoryview(bytearray(data)))])])
            body = encode_produce_request(_PRODUCE_VERSION, request)
            with _channel(self.bootstrap) as channel:
                answer = channel.request(ApiKey.PRODUCE, _PRODUCE_VERSION, body, decode_produce_response)
            ((_, (partition,)),) = answer.topics
            return ErrorCode(partition.error_code)

        error = settled(attempt)
        if error is ErrorCode.NONE:
            self._sequences[topic] = sequence + 1
        return error

    def commit_offset(self, group: str, topic: str, offset: int) -> None:
        """Commit an offset of partition 0 with the transaction."""

        def add() -> ErrorCode:
            error: ErrorCode = self._ask(
                ApiKey.ADD_OFFSETS_TO_TXN, 3, **self._identity, group_id=group
            ).error_code
            return error

        assert settled(add) is ErrorCode.NONE
        api, version = ApiKey.TXN_OFFSET_COMMIT, 3
        partition = build(
            request_struct(api, version, "TxnOffsetCommitRequestPartition"),
            partition_index=0,
            committed_offset=offset,
            committed_metadata="",
        )
        named = build(
            request_struct(api, version, "TxnOffsetCommitRequestTopic"), name=topic, partitions=(partition,)
        )

        def commit() -> ErrorCode:
            find = self._ask(ApiKey.FIND_COORDINATOR, 3, key=group, key_type=0)
            if find.error_code:
                return find.error_code
            answer = self._ask(api, version, **self._identity, group_id=group, topics=(named,))
            return answer.topics[0].partitions[0].error_code

        assert settled(commit) is ErrorCode.NONE

    def end(self, *, committed: bool) -> ErrorCode:
        """Commit or abort."""

        def attempt() -> ErrorCode:
            error: ErrorCode = self._ask(ApiKey.END_TXN, 3, **self._identity, committed=committed).error_code
            return error

        return settled(attempt)

    def state(self) -> tuple[str, int, int]:
        """What the coordinator knows: the state, producer id and epoch."""
        found: list[Any] = []

        def attempt() -> ErrorCode:
            (described,) = self._ask(
                ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=(self.name,)
            ).transaction_states
            found.append(described)
            return described.error_code

        assert settled(attempt) is ErrorCode.NONE
        return found[-1].transaction_state, found[-1].producer_id, found[-1].producer_epoch
