"""Prints records of internal topics as Kafka's dump tool does with `--offsets-decoder` and the like.

Rules: what Kafka 3.9 prints. It does not know the types and fields of later versions. Records of share
groups, which 3.9 does not know, are printed as Kafka 4.1 prints them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from klog.commands.kafka_tools.dump_log import frames
from klog.commands.kafka_tools.dump_log.batch import damaged
from klog.commands.kafka_tools.dump_log.java import ScalaOrder
from klog.commands.kafka_tools.dump_log.messages import (
    Cursor,
    Json,
    MessageError,
    json_text,
    read_version,
)
from klog.commands.shared.records.plan import Decoder
from klog.formats import consumer_offsets, control_records, schema, share_group_state, transaction_state
from klog.formats.java_hash import hash_of_string
from klog.formats.packed import CONTROL_KEY
from klog.formats.schema import BYTES, INT32, STRING, Field, array, struct
from klog.formats.structures import Versioned

if TYPE_CHECKING:
    from klog.commands.kafka_tools.dump_log.message_parser import MessageParser

# 3.9 does not know later types.
_GROUP_VALUES: Final = {kind: value for kind, value in consumer_offsets.VALUES.items() if kind <= 8}
_NEWER_TAGS: Final = frozenset({"metadataHash"})
_NEWER_TRANSACTION_TAGS: Final = frozenset(
    {"previousProducerId", "nextProducerId", "nextProducerEpoch", "clientTransactionVersion"}
)

_OWNED: Final = array(
    struct(Field("topic", STRING, "of the partitions"), Field("partitions", array(INT32), "numbers"))
)
_SUBSCRIPTION: Final = schema.message(
    "ConsumerProtocolSubscription",
    range(4),
    schema.NEVER,
    Field("topics", array(STRING), "that the member wants"),
    Field("userData", BYTES, "of the assignor", null_since=0),
    Field("ownedPartitions", _OWNED, "before the rebalance", since=1),
    Field("generationId", INT32, "that they were owned in", since=2),
    Field("rackId", STRING, "of the member", since=3, null_since=3),
)
_ASSIGNMENT: Final = schema.message(
    "ConsumerProtocolAssignment",
    range(4),
    schema.NEVER,
    Field("assignedPartitions", _OWNED, "of the member"),
    Field("userData", BYTES, "of the assignor", null_since=0),
)


@dataclass(frozen=True, slots=True)
class _Keyed:
    """Parses the records of a topic whose keys begin with the type of the record."""

    decoder: str
    key: Versioned
    values: Mapping[int, Versioned]
    read: Callable[[int, int, Cursor], Json]
    """The value of a record of a type, from its version and what follows."""

    def __call__(self, key: bytes | None, value: bytes | None, offset: int) -> tuple[str | None, str | None]:
        if key is None:
            raise damaged(f"message at offset {offset} has no key, which the {self.decoder} decoder needs")
        try:
            return self._record(key, value, offset)
        except MessageError as error:
            return f"Error at offset {offset}, skipping. {error}", None

    def _record(self, key: bytes, value: bytes | None, offset: int) -> tuple[str | None, str | None]:
        cursor = Cursor(key)
        kind = _version(cursor, "key")
        if kind not in self.values:
            return f"Unknown record type {kind} at offset {offset}, skipping.", None
        shown_key = json_text({"type": str(kind), "data": _message(self.key, cursor, kind, "key")})
        if value is None:
            return shown_key, "<DELETE>"
        cursor = Cursor(value)
        version = _version(cursor, "value")
        return shown_key, json_text({"version": str(version), "data": self.read(kind, version, cursor)})


def _group_value(kind: int, version: int, cursor: Cursor) -> Json:
    skipped = _NEWER_TAGS | ({"topicId"} if kind < 2 else frozenset())
    data = _message(consumer_offsets.VALUES[kind], cursor, version, "value", skipped)
    if kind == 2 and data["protocolType"] == "consumer":
        for member in data["members"]:
            _decode_member(member, "subscription", _SUBSCRIPTION)
            _decode_member(member, "assignment", _ASSIGNMENT)
    return data


def _share_value(kind: int, version: int, cursor: Cursor) -> Json:
    if version != 0:
        raise MessageError(f"Found an unknown record version {version} for {kind} type")
    return _message(share_group_state.VALUES[kind], cursor, version, "value")


def _version(cursor: Cursor, name: str) -> int:
    if cursor.left < 2:
        raise MessageError(f"Could not read version from {name}'s buffer.")
    return int(cursor.number(">h"))


def _message(
    message: Versioned, cursor: Cursor, version: int, name: str, skipped: frozenset[str] = frozenset()
) -> Json:
    try:
        return read_version(message, version, cursor, skipped)
    except MessageError as error:
        raise MessageError(
            f"Could not read record with version {version} from {name}'s buffer due to: {error}."
        ) from None


def _decode_member(member: dict[str, Json], field: str, message: Versioned) -> None:
    """Replace a member's bytes by the message in them, if there is one."""
    try:
        cursor = Cursor(member[field])
        member[field] = read_version(message, cursor.number(">h"), cursor)
    except MessageError:
        return  # the tool prints the bytes, too


def _transaction(key: bytes | None, value: bytes | None, _offset: int) -> tuple[str | None, str | None]:
    try:
        return _transaction_record(key, value)
    except MessageError as error:
        raise damaged(f"is not a record of the transaction log: {error}") from None


def _transaction_record(key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    if key is None:
        raise MessageError("the key is null")
    cursor = Cursor(key)
    version = cursor.number(">h")
    if version != 0:
        return f"unknown::version={version}", None
    identity = read_version(transaction_state.Key, 0, cursor)["transactionalId"]
    shown_key = f"transaction_metadata::transactionalId={identity}"
    if value is None:
        return shown_key, "<DELETE>"
    cursor = Cursor(value)
    version = cursor.number(">h")
    if not 0 <= version <= 1:
        raise MessageError(f"Unknown version {version} from the transaction log message value")
    data = read_version(transaction_state.Value, version, cursor, _NEWER_TRANSACTION_TAGS)
    status = data["transactionStatus"]
    if not 0 <= status < len(transaction_state.STATES):
        raise MessageError(f"Unknown transaction state id {status} from the transaction status message")
    partitions = [] if status == 0 else _partitions(data["transactionPartitions"])
    return shown_key, (
        f"producerId:{data['producerId']},producerEpoch:{data['producerEpoch']},"
        f"state={transaction_state.STATES[status]},partitions=[{','.join(partitions)}],"
        f"txnLastUpdateTimestamp={data['transactionLastUpdateTimestampMs']},"
        f"txnTimeoutMs={data['transactionTimeoutMs']}"
    )


def _partitions(topics: list[dict[str, Json]] | None) -> list[str]:
    """The partitions in the order of Scala's mutable hash set, in which the tool prints them."""
    if topics is None:
        raise MessageError("an ongoing transaction has no partitions")
    order: ScalaOrder[tuple[str, int]] = ScalaOrder()
    for topic in topics:
        of_topic = hash_of_string(topic["topic"])
        order.add_all(
            {
                (topic["topic"], number): (31 * (31 + number) + of_topic) & 0xFFFF_FFFF
                for number in topic["partitionIds"]
            }
        )
    return [f"{topic}-{number}" for topic, number in order.sorted()]


_CONTROLS: Final = {
    3: ("SnapshotHeader", control_records.SnapshotHeader),
    4: ("SnapshotFooter", control_records.SnapshotFooter),
    5: ("KRaftVersion", control_records.KRaftVersion),
    6: ("KRaftVoters", control_records.Voters),
}


def control_text(key: bytes | None, value: bytes | None) -> str:
    """What the tool prints for a control record that is not a transaction marker.

    Raises CorruptRecordError.
    """
    if key is None or len(key) < CONTROL_KEY.size:
        raise damaged("control record has no key of 4 bytes")
    version, kind = CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise damaged("control record has a negative version")
    if kind not in _CONTROLS:
        raise damaged("transaction marker has no value of 6 bytes or a negative version")
    if value is None:
        raise damaged("control record has no value")
    name, message = _CONTROLS[kind]
    cursor = Cursor(value)
    try:
        version = cursor.number(">h")
        # The tool reads version 0, whatever the record says.
        data = {"version": version, **read_version(message, 0, cursor)}
    except MessageError as error:
        raise damaged(f"control record of type {kind} does not decode: {error}") from None
    if version not in message.versions:
        raise damaged(f"control record of type {kind} has the unknown version {version}")
    return f" {name} {json_text(data)}"


PARSERS: Final[dict[Decoder, MessageParser]] = {
    Decoder.OFFSETS: _Keyed("offsets", consumer_offsets.Key, _GROUP_VALUES, _group_value),
    Decoder.TRANSACTION_LOG: _transaction,
    Decoder.SHARE_GROUP_STATE: _Keyed(
        "share group state", share_group_state.Key, share_group_state.VALUES, _share_value
    ),
    Decoder.CLUSTER_METADATA: frames.cluster_metadata_parser,
    Decoder.REMOTE_LOG_METADATA: frames.remote_log_metadata_parser,
}
