"""Prints framed records (KRaft's metadata log, remote log metadata) as Kafka 3.9's dump tool does.

Rules: what the tool prints with `--cluster-metadata-decoder` and `--remote-log-metadata-decoder`. If a record
cannot be read, the tool prints the reason and goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, NamedTuple

import construct as c

from klog.commands.kafka_tools.dump_log.messages import (
    Cursor,
    Json,
    MessageError,
    json_text,
    json_text_without_floats,
    read_fields,
)
from klog.formats import metadata_records, remote_log_metadata, schema
from klog.formats.definition_shapes import fixed, shape_of
from klog.formats.errors import FormatError
from klog.formats.frames import FRAME_VERSION, RecordType
from klog.formats.reader_source import Reader, kafka_reader

_LAST_METADATA_TYPE: Final = 27  # of Kafka 3.9
_HEAD_BYTES: Final = 3
_SHORT_BYTES: Final = 2**15 - 1  # no text of it can be too long for Kafka
_NEWER_TAGS: Final = frozenset({"txnIndexEmpty"})

_SEGMENT_STATES: Final = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
_PARTITION_STATES: Final = (
    "DELETE_PARTITION_MARKED",
    "DELETE_PARTITION_STARTED",
    "DELETE_PARTITION_FINISHED",
)


def cluster_metadata_parser(
    _key: bytes | None, value: bytes | None, offset: int
) -> tuple[str | None, str | None]:
    """A record of `__cluster_metadata` as JSON with type, version and data."""
    usual = None if value is None else _usual_text(value)
    if usual is not None:
        return None, usual
    try:
        if value is None:
            raise MessageError("Error while reading frame version")
        return None, _text(*_framed(value, metadata_records.RECORDS, _LAST_METADATA_TYPE))
    except MessageError as error:
        return None, f"Error at {offset}, skipping. {error}"


@cache
def _type_name(kind: int) -> str:
    return re.sub("(?<!^)(?=[A-Z])", "_", metadata_records.RECORDS[kind].name).upper()


def remote_log_metadata_parser(
    _key: bytes | None, value: bytes | None, offset: int
) -> tuple[str | None, str | None]:
    """A record of `__remote_log_metadata` as Java's `toString` writes it."""
    try:
        if value is None:
            # The message of the JVM's exception for a null value.
            raise MessageError(
                'Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of'
                ' "org.apache.kafka.common.record.Record.value()" is null'
            )
        kind, _, data = _framed(value, remote_log_metadata.RECORDS, max(remote_log_metadata.RECORDS))
        return None, _REMOTE[kind](data)
    except MessageError as error:
        return None, f"Error at offset {offset}, skipping. {error}"


def _framed(value: bytes, records: Mapping[int, RecordType], last_type: int) -> tuple[int, int, Json]:
    """Type, version and fields of a framed record. Raises MessageError."""
    cursor = Cursor(value)
    frame = _short(cursor, "frame version")
    if frame == 0:
        raise MessageError(
            "Could not deserialize metadata record with frame version 0. Note that upgrades from the preview"
            " release of KRaft in 2.8 to newer versions are not supported."
        )
    if frame != FRAME_VERSION:
        raise MessageError(
            f"Could not deserialize metadata record due to unknown frame version {frame}"
            f"(only frame version {FRAME_VERSION} is supported)"
        )
    kind, version = _short(cursor, "type"), _short(cursor, "version")
    if kind not in records or kind > last_type:
        raise MessageError(
            f"org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id {kind}"
        )
    record = records[kind]
    try:
        found = read_fields(_shapes(record), version, cursor, _NEWER_TAGS)
    except MessageError:
        raise MessageError(f"Failed to deserialize record with type {kind}") from None
    if cursor.left:
        raise MessageError(f"Found {cursor.left} byte(s) of garbage after {kind}")
    return kind, version, _in_order(record, found)


class _Usual(NamedTuple):
    """How a type and version of metadata records is read and written, if it is as its definition says."""

    record: RecordType
    read: Reader
    write: Callable[[Json], str]


@cache
def _usual(kind: int, version: int) -> _Usual | None:
    record = metadata_records.RECORDS.get(kind)
    if record is None or kind > _LAST_METADATA_TYPE or version not in record.versions:
        return None
    fields = _shapes(record)[version]
    has_floats = any(fixed(field) == "d" for field in fields.subcons)
    return _Usual(
        record, kafka_reader(shape_of(fields)), json_text if has_floats else json_text_without_floats
    )


def _usual_text(value: bytes) -> str | None:
    """What is printed of a short record of a usual kind, fast; None of any other."""
    if not _HEAD_BYTES <= len(value) <= _SHORT_BYTES or value[0] != FRAME_VERSION:
        return None
    kind, version = value[1], value[2]  # of one byte each, or not known
    usual = _usual(kind, version)
    if usual is None:
        return None
    try:
        found, end = usual.read(value, _HEAD_BYTES)
    except FormatError:
        return None
    return _text(kind, version, _in_order(usual.record, found), usual.write) if end == len(value) else None


def _text(kind: int, version: int, data: Json, write: Callable[[Json], str] = json_text) -> str:
    return write({"type": _type_name(kind), "version": version, "data": data})


def _in_order(record: RecordType, found: Mapping[str, Json]) -> Json:
    return {field.name: found[field.name] for field in record.fields if field.name in found}


@cache
def _shapes(record: RecordType) -> dict[int, c.Construct]:
    return {version: schema.fields_of(version, 0, *record.fields) for version in record.versions}


def _short(cursor: Cursor, entity: str) -> int:
    try:
        value = cursor.uvarint()
    except MessageError:
        raise MessageError(f"Error while reading {entity}") from None
    if value > 0x7FFF:
        raise MessageError(f"Value for {entity} was too large.")
    return (value + 2**15) % 2**16 - 2**15


def _partition(data: Json) -> str:
    return f"{data['id']}:{data['name']}-{data['partition']}"


def _segment_id(data: Json) -> str:
    partition = _partition(data["topicIdPartition"])
    return f"RemoteLogSegmentId{{topicIdPartition={partition}, id={data['id']}}}"


def _state(names: tuple[str, ...], number: int, message: str) -> str:
    if not 0 <= number < len(names):
        raise MessageError(message)
    return names[number]


def _segment_state(data: Json) -> str:
    return _state(_SEGMENT_STATES, data["remoteLogSegmentState"], "state can not be null")


def _custom(data: Json) -> str:
    blob = data["customMetadata"]
    return "Optional.empty" if blob is None else f"Optional[CustomMetadata{{{len(blob)} bytes}}]"


def _epochs(data: Json) -> str:
    epochs = {entry["leaderEpoch"]: entry["offset"] for entry in data["segmentLeaderEpochs"]}
    if not epochs:
        raise MessageError("segmentLeaderEpochs can not be null or empty")
    return "{" + ", ".join(f"{epoch}={offset}" for epoch, offset in sorted(epochs.items())) + "}"


def _segment(data: Json) -> str:
    start, end = data["startOffset"], data["endOffset"]
    if start < 0:
        raise MessageError(
            f"Unexpected start offset = {start}. StartOffset for a remote segment cannot be negative"
        )
    if end < start:
        raise MessageError(
            f"Unexpected end offset = {end}. EndOffset for a remote segment cannot be less than"
            f" startOffset = {start}"
        )
    epochs = _epochs(data)
    return (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(data['remoteLogSegmentId'])}"
        f", startOffset={start}, endOffset={end}, brokerId={data['brokerId']}"
        f", maxTimestampMs={data['maxTimestampMs']}, eventTimestampMs={data['eventTimestampMs']}"
        f", segmentLeaderEpochs={epochs}, segmentSizeInBytes={data['segmentSizeInBytes']}"
        f", customMetadata={_custom(data)}, state={_segment_state(data)}}}"
    )


def _update(data: Json) -> str:
    return (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id(data['remoteLogSegmentId'])}"
        f", customMetadata={_custom(data)}, state={_segment_state(data)}"
        f", eventTimestampMs={data['eventTimestampMs']}, brokerId={data['brokerId']}}}"
    )


def _delete(data: Json) -> str:
    state = _state(_PARTITION_STATES, data["remotePartitionDeleteState"], "null")
    return (
        f"RemotePartitionDeleteMetadata{{topicPartition={_partition(data['topicIdPartition'])}, state={state}"
        f", eventTimestampMs={data['eventTimestampMs']}, brokerId={data['brokerId']}}}"
    )


def _snapshot(data: Json) -> str:
    state = _segment_state(data)
    return (
        f"RemoteLogSegmentMetadataSnapshot{{segmentId={data['segmentId']}, startOffset={data['startOffset']}"
        f", endOffset={data['endOffset']}, maxTimestampMs={data['maxTimestampMs']}"
        f", segmentLeaderEpochs={_epochs(data)}, segmentSizeInBytes={data['segmentSizeInBytes']}"
        f", customMetadata={_custom(data)}, state={state}}}"
    )


_REMOTE: Final = {0: _segment, 1: _update, 2: _delete, 3: _snapshot}
