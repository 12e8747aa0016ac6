"""The one place of Hypothesis strategies: values of every format, damaged bytes, whole small log directories.

`values_of` makes a strategy of a definition itself, so a field added to a definition is generated at once.
Batches, snapshots and directories are consistent (lengths, counts, checksums, offsets that run on).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any

import construct as c
from hypothesis import strategies as st

from klog.formats import (
    checkpoints,
    clean_shutdown,
    frames,
    message_set,
    meta_properties,
    names,
    offset_index,
    partition_metadata,
    producer_snapshot,
    quorum_state,
    record_batch,
    time_index,
    zookeeper_files,
)
from klog.formats import primitives as p
from klog.formats import structures as s
from klog.formats.constants import CODECS, INT32_MAX, INT64_MAX
from klog.formats.keyed import Keyed, KeyValue
from klog.formats.names import DirectoryName, DirectoryState, FileKind, FileName, FileState, TopicPartition
from klog.kernel import batch_builder

Strategy = st.SearchStrategy

# Small and edge values first: bytes are short, numbers are from all over their range.
int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), INT32_MAX)
int64s = st.integers(-(2**63), INT64_MAX)
offsets = st.one_of(st.integers(0, 1000), st.integers(0, INT64_MAX - 2**32))
timestamps = st.one_of(st.integers(1_400_000_000_000, 1_800_000_000_000), st.just(-1), st.integers(0, 2**53))
payloads = st.one_of(st.binary(max_size=40), st.text(max_size=20).map(lambda text: text.encode("utf-8")))
nullable_payloads = st.none() | payloads
# Text as a definition reads it: bytes that are no UTF-8 stand as lone surrogates.
texts = payloads.map(lambda raw: raw.decode("utf-8", "surrogateescape"))
uuids = st.binary(min_size=16, max_size=16).map(names.encode_uuid)
topics = st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True).filter(names.is_legal_topic)
topic_partitions = st.builds(TopicPartition, topics, st.integers(0, 200) | st.integers(0, INT32_MAX))

# ------------------------------------------------------------------ values of any definition


def has_invalid_text(value: Any) -> bool:
    """Whether there is text that no UTF-8 has, which Kafka never writes."""
    return "udc" in ascii(value)


@singledispatch
def values_of(definition: Any) -> Strategy[Any]:
    """Values that a definition can write."""
    raise TypeError(f"no strategy for {definition!r}")


@values_of.register
def _(definition: c.Renamed) -> Strategy[Any]:
    return values_of(definition.subcon)


@values_of.register
def _(definition: c.Struct) -> Strategy[Any]:
    fields = {field.name: values_of(field) for field in definition.subcons}
    return st.fixed_dictionaries(fields).map(c.Container)


@values_of.register
def _(definition: c.FormatField) -> Strategy[Any]:
    kind = definition.fmtstr[-1]
    if kind == "d":
        return st.floats(allow_nan=False)
    bits = 8 * definition.length
    low = 0 if kind.isupper() else -(2 ** (bits - 1))
    return st.integers(low, low + 2**bits - 1)


@values_of.register
def _(definition: c.Enum) -> Strategy[Any]:
    return st.sampled_from(sorted(definition.encmapping))


@values_of.register
def _(definition: c.Const) -> Strategy[Any]:
    return st.just(definition.value)


@values_of.register(c.GreedyBytes.__class__)
def _(definition: Any) -> Strategy[Any]:
    return st.binary(max_size=20)


@values_of.register
def _(definition: p.VarUInt) -> Strategy[Any]:
    return st.integers(0, 2**definition.bits - 1).map(definition.decode)


@values_of.register
def _(definition: p.SizedBytes) -> Strategy[Any]:
    return payloads | st.none() if definition.null else payloads


@values_of.register
def _(definition: p.SizedString) -> Strategy[Any]:
    return texts | st.none() if definition.null else texts


@values_of.register
def _(definition: p.SizedArray) -> Strategy[Any]:
    items = st.lists(values_of(definition.subcon), max_size=3)
    return items | st.none() if definition.null else items


@values_of.register
def _(definition: s.Filled) -> Strategy[Any]:
    return st.lists(values_of(definition.subcon), max_size=5)


@values_of.register
def _(definition: s.UntilMark) -> Strategy[Any]:
    items = values_of(definition.subcon)
    built = definition.subcon.build
    return st.lists(items.filter(lambda item: not built(item).startswith(definition.mark)), max_size=3)


@values_of.register
def _(definition: s.AtEnd) -> Strategy[Any]:
    return values_of(definition.subcon) | st.none()


@values_of.register
def _(definition: s.Sized) -> Strategy[Any]:
    return values_of(definition.subcon)


@values_of.register
def _(definition: p.UuidField) -> Strategy[Any]:
    return uuids


@values_of.register
def _(definition: p.BoolField) -> Strategy[Any]:
    return st.booleans()


@values_of.register
def _(definition: s.NullableStruct) -> Strategy[Any]:
    return values_of(definition.subcon) | st.none()


@values_of.register
def _(definition: s.Versioned) -> Strategy[Any]:
    return st.sampled_from(sorted(definition.versions)).flatmap(
        lambda version: values_of(definition.versions[version]).map(
            lambda fields: c.Container({"version": version, **fields})
        )
    )


@values_of.register
def _(definition: s.TaggedFields) -> Strategy[Any]:
    @st.composite
    def fields(draw: st.DrawFn) -> list[c.Container]:
        known = [tag for tag in sorted(definition.known) if draw(st.booleans())]
        found = [
            c.Container(
                tag=tag, name=definition.known[tag].name, value=draw(values_of(definition.known[tag]))
            )
            for tag in known
        ]
        if draw(st.booleans()):
            tag = draw(st.integers(100, 2**31))
            found.append(c.Container(tag=tag, name=None, value=draw(st.binary(max_size=9))))
        return found

    return fields()


@values_of.register
def _(definition: Keyed) -> Strategy[Any]:
    return values_of(definition.key).flatmap(
        lambda key: st.builds(KeyValue, st.just(key), st.none() | values_of(definition.choose(key)))
    )


@st.composite
def zookeeper_transactions(draw: st.DrawFn) -> c.Container:
    """A transaction of any type."""
    kind = draw(st.sampled_from(sorted(zookeeper_files.RECORDS)))
    head = draw(values_of(zookeeper_files.TransactionHead))
    # Two empty paths would look like a digest.
    record = draw(values_of(zookeeper_files.RECORDS[kind]).filter(lambda each: each.get("paths") != ["", ""]))
    digest = draw(st.none() | values_of(zookeeper_files.TransactionDigest))
    if digest is not None:
        digest.version = zookeeper_files.DIGEST_VERSION
    return c.Container({**head, "type": kind, "record": record, "digest": digest})


zookeeper_snapshots = values_of(zookeeper_files.Snapshot)
zookeeper_logs = st.builds(
    lambda head, transactions, padding: c.Container(
        **head,
        entries=[
            c.Container(checksum=checksum, transaction=transaction, end=zookeeper_files.END_OF_ENTRY)
            for checksum, transaction in transactions
        ],
        padding=bytes(padding),
    ),
    values_of(zookeeper_files.LogHead),
    st.lists(st.tuples(int64s, zookeeper_transactions()), max_size=3),
    st.integers(0, 40),
)


@st.composite
def framed_records(draw: st.DrawFn, records: Mapping[int, frames.RecordType]) -> c.Container:
    """A record of the metadata log or the like; sometimes of a type or version that is not defined."""
    by_type = frames.FieldsByType(records)
    kind, version = draw(
        st.sampled_from(sorted(by_type.fields)) | st.tuples(st.just(99), st.integers(0, 300))
    )
    definition = by_type.fields.get((kind, version), c.GreedyBytes)
    return c.Container(
        frameVersion=frames.FRAME_VERSION, type=kind, version=version, fields=draw(values_of(definition))
    )


# ------------------------------------------------------------------ batches, messages, segments

codecs = st.sampled_from(CODECS)


@st.composite
def records(draw: st.DrawFn, offset_delta: int = 0, timestamp_delta: int | None = None) -> c.Container:
    """One record of magic 2."""
    header = st.fixed_dictionaries({"key": texts, "value": nullable_payloads}).map(c.Container)
    return c.Container(
        attributes=0,
        timestampDelta=draw(st.integers(-1000, 10**6)) if timestamp_delta is None else timestamp_delta,
        offsetDelta=offset_delta,
        key=draw(nullable_payloads),
        value=draw(nullable_payloads),
        headers=draw(st.lists(header, max_size=3)),
    )


@st.composite
def record_batches(
    draw: st.DrawFn,
    base_offset: int | None = None,
    codec: str | None = None,
    max_records: int = 5,
    gaps: bool = True,
) -> c.Container:
    """A batch of magic 2, whole and with its crc; with `gaps`, offsets have holes as after compaction."""
    codec = draw(codecs) if codec is None else codec
    step = st.integers(1, 4) if gaps else st.just(1)
    deltas = []
    delta = draw(st.integers(0, 3)) if gaps else 0
    for _ in range(draw(st.integers(0 if gaps else 1, max_records))):
        deltas.append(delta)
        delta += draw(step)
    found = [draw(records(delta)) for delta in deltas]
    base_timestamp = draw(st.integers(1_400_000_000_000, 1_800_000_000_000))
    times = [base_timestamp + record.timestampDelta for record in found]
    idempotent = draw(st.booleans())
    batch = c.Container(
        baseOffset=draw(offsets) if base_offset is None else base_offset,
        partitionLeaderEpoch=draw(st.integers(-1, 50)),
        attributes=c.Container(
            unused=0,
            hasDeleteHorizon=False,
            isControl=False,
            isTransactional=idempotent and draw(st.booleans()),
            timestampType=draw(st.sampled_from(["CreateTime", "LogAppendTime"])),
            codec=codec,
        ),
        lastOffsetDelta=(deltas[-1] if deltas else 0) + (draw(st.integers(0, 3)) if gaps else 0),
        baseTimestamp=base_timestamp,
        maxTimestamp=max(times, default=-1),
        producerId=draw(st.integers(0, 2**40)) if idempotent else -1,
        producerEpoch=draw(st.integers(0, 2**15 - 1)) if idempotent else -1,
        baseSequence=draw(st.integers(0, INT32_MAX)) if idempotent else -1,
        recordCount=len(found),
        records=found,
    )
    # A batch that the cleaner emptied has no block, whatever its codec.
    if codec != "none":
        block = record_batch.build_records(found)
        batch["records"] = record_batch.close_block(batch, block) if found else b""
    return record_batch.sealed(batch)


def batch_bytes(**options: Any) -> Strategy[bytes]:
    """The bytes of a batch of magic 2."""
    return record_batches(**options).map(record_batch.build)


@st.composite
def messages(draw: st.DrawFn, magic: int, offset: int | None = None) -> c.Container:
    """An uncompressed message of magic 0 or 1, whole and with its crc."""
    kind = draw(st.sampled_from(["CreateTime", "LogAppendTime"])) if magic == 1 else "CreateTime"
    return message_set.sealed(
        draw(offsets) if offset is None else offset,
        {
            "magic": magic,
            "attributes": c.Container(unused=0, timestampType=kind, codec="none"),
            "timestamp": draw(timestamps) if magic == 1 else None,
            "key": draw(nullable_payloads),
            "value": draw(nullable_payloads),
        },
    )


@st.composite
def wrapped_messages(
    draw: st.DrawFn, magic: int, base_offset: int | None = None, max_messages: int = 5
) -> c.Container:
    """A compressed set of messages of magic 0 (absolute offsets) or 1 (relative ones)."""
    base = draw(offsets) if base_offset is None else base_offset
    count = draw(st.integers(1, max_messages))
    first = base if magic == 0 else 0
    inner = [draw(messages(magic, first + index)) for index in range(count)]
    codec = draw(st.sampled_from(["gzip", "snappy", "lz4"]))
    times = [message.body.timestamp for message in inner] if magic == 1 else []
    return message_set.sealed(
        base + count - 1,
        {
            "magic": magic,
            "attributes": c.Container(unused=0, timestampType="CreateTime", codec=codec),
            "timestamp": max(times) if times else None,
            "key": None,
            "value": message_set.close_block(magic, codec, b"".join(map(message_set.build, inner))),
        },
    )


@st.composite
def segments(
    draw: st.DrawFn, base_offset: int = 0, max_entries: int = 4, magics: tuple[int, ...] = (0, 1, 2)
) -> bytes:
    """The bytes of a `.log`: batches and messages of the given magics, offsets running on."""
    parts = []
    offset = base_offset
    for _ in range(draw(st.integers(0, max_entries))):
        magic = draw(st.sampled_from(magics))
        if magic == 2:
            batch = draw(record_batches(base_offset=offset, max_records=3))
            parts.append(record_batch.build(batch))
            offset = batch.baseOffset + batch.lastOffsetDelta + 1
            continue
        message = draw(st.one_of(messages(magic, offset), wrapped_messages(magic, offset, 3)))
        parts.append(message_set.build(message))
        offset = message.offset + 1
    return b"".join(parts)


# Batches of a few producers in a few leader epochs, many of which may be joined: what `log_of` takes.
joinable_batches = st.fixed_dictionaries(
    {
        "gap": st.sampled_from([0, 0, 0, 0, 1, 5000]),
        "values": st.lists(st.none() | st.binary(max_size=30), min_size=1, max_size=4),
        "headers": st.lists(st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
        "times": st.integers(-1, 2000) | st.integers(0, 2**62),
        "codec": st.sampled_from([0, 0, 1, 2, 3, 4]),
        "leader_epoch": st.sampled_from([3, 3, 3, 4]),
        "producer": st.sampled_from([None, None, (7, 0), (7, 1), (8, 0)]),
        "lost": st.sampled_from([0, 0, 0, 1]),
        "kind": st.sampled_from(["data", "data", "data", "time", "txn", "horizon", "empty", "marker"]),
    }
)


def log_of(drawn: Sequence[Mapping[str, Any]], first_offset: int = 0, *, compressed: bool = False) -> bytes:
    """The bytes of a log of `joinable_batches`: offsets and sequences run on, except over gaps."""
    parts, offset = [], first_offset
    sequences: dict[Any, int] = {}
    for one in drawn:
        offset += one["gap"]
        parts.append(_joinable(one, offset, sequences, one["codec"] if compressed else 0))
        offset += len(one["values"])
    return b"".join(parts)


def _joinable(one: Mapping[str, Any], offset: int, sequences: dict[Any, int], codec: int) -> bytes:
    values, kind, producer = one["values"], one["kind"], one["producer"]
    in_transaction = kind in ("txn", "marker") and producer is not None
    sequence = -1
    if producer is not None and kind != "marker":
        sequence = sequences.get(producer, 0) + one["lost"]
        sequences[producer] = sequence + len(values)
    fields = batch_builder.BatchFields(
        codec=codec,
        log_append_time_ms=1234 if kind == "time" else None,
        leader_epoch=one["leader_epoch"],
        producer_id=-1 if producer is None else producer[0],
        producer_epoch=-1 if producer is None else producer[1],
        base_sequence=sequence,
        is_transactional=in_transaction,
        is_control=kind == "marker" and in_transaction,
        delete_horizon_ms=99 if kind == "horizon" else None,
    )
    if fields.is_control:
        rows = [batch_builder.RecordData(offset, 5, b"\0\0\0\1", b"\0\0\0\0\0\1")]
        return bytes(batch_builder.build_batch(rows, dataclasses.replace(fields, codec=0)))
    if kind == "empty":
        return bytes(
            batch_builder.empty_batch(
                fields, base_offset=offset, last_offset=offset + len(values) - 1, max_timestamp=5
            )
        )
    rows = [
        batch_builder.RecordData(offset + at, one["times"] + at % 2, b"k", value, one["headers"])
        for at, value in enumerate(values)
    ]
    return bytes(batch_builder.build_batch(rows, fields))


# ------------------------------------------------------------------ indexes, snapshots, text files, names


@st.composite
def indexes(draw: st.DrawFn, entry: c.Construct) -> c.Container:
    """An index file of such entries, sometimes with a pre-allocated tail."""
    zero = c.Container(dict.fromkeys((field.name for field in entry.subcons), 0))
    entries = draw(st.lists(values_of(entry).filter(lambda value: value != zero), max_size=5))
    # The first entry of a pre-allocated index is taken in earnest even when it is zero.
    tail = bytes(entry.sizeof() * draw(st.integers(0, 3))) if entries else b""
    return c.Container(entries=entries, tail=tail)


offset_indexes = indexes(offset_index.Entry)
time_indexes = indexes(time_index.Entry)
producer_snapshots = st.lists(values_of(producer_snapshot.ProducerEntry), max_size=4).map(
    producer_snapshot.sealed
)

offset_checkpoints = st.one_of(
    st.just(checkpoints.OffsetCheckpoint((), None)),
    st.lists(st.builds(checkpoints.OffsetEntry, topic_partitions, int64s), max_size=5).map(
        lambda entries: checkpoints.OffsetCheckpoint(tuple(entries))
    ),
)
epoch_checkpoints = st.one_of(
    st.just(checkpoints.EpochCheckpoint((), None)),
    st.lists(st.builds(checkpoints.EpochEntry, int32s, int64s), max_size=5).map(
        lambda entries: checkpoints.EpochCheckpoint(tuple(entries))
    ),
)
partition_metadatas = uuids.filter(lambda text: text != "A" * 22).map(partition_metadata.PartitionMetadata)
clean_shutdowns = st.one_of(
    st.just(clean_shutdown.CleanShutdown()), st.builds(clean_shutdown.CleanShutdown, st.just(0), int64s)
)
quorum_states = st.builds(
    lambda leader, epoch, voted, voters: quorum_state.QuorumState(
        (
            ("clusterId", ""),
            ("leaderId", leader),
            ("leaderEpoch", epoch),
            ("votedId", voted),
            ("appliedOffset", 0),
            ("currentVoters", [{"voterId": voter} for voter in voters]),
            ("data_version", 0),
        )
    ),
    int32s,
    int32s,
    int32s,
    st.lists(int32s, max_size=3),
)
# Any character may stand in a property: what is not ASCII is written as an escape.
property_texts = st.text(max_size=12)
meta_property_files = st.one_of(
    st.builds(
        meta_properties.create,
        st.just(0),
        node_id=st.none() | int32s,
        cluster_id=st.none() | property_texts,
        directory_id=st.none() | uuids,
        comments=st.just(("", "Sat Nov 21 08:54:01 UTC 2026")),
    ),
    st.builds(
        meta_properties.create,
        st.just(1),
        node_id=int32s,
        cluster_id=property_texts,
        directory_id=st.none() | uuids,
    ),
)

# Tuples, not `builds`: that would also draw the fields that have defaults.
directory_names = st.one_of(
    topic_partitions.map(DirectoryName),
    st.tuples(
        topic_partitions,
        st.sampled_from([DirectoryState.DELETE, DirectoryState.FUTURE, DirectoryState.STRAY]),
        st.uuids().map(lambda value: value.hex),
    ).map(lambda parts: DirectoryName(*parts)),
)
file_names = st.one_of(
    st.tuples(
        st.sampled_from(sorted(names.SEGMENT_KINDS)),
        st.integers(0, INT64_MAX),
        st.sampled_from([FileState.NORMAL, FileState.DELETED, FileState.CLEANED, FileState.SWAP]),
    ).map(lambda parts: FileName(*parts)),
    st.tuples(
        st.just(FileKind.METADATA_SNAPSHOT),
        st.integers(0, INT64_MAX),
        st.sampled_from([FileState.NORMAL, FileState.DELETED]),
        st.integers(0, INT32_MAX),
    ).map(lambda parts: FileName(*parts)),
    st.tuples(st.integers(0, INT64_MAX), st.integers(0, INT32_MAX), st.integers(0, INT64_MAX)).map(
        lambda parts: FileName(
            FileKind.METADATA_SNAPSHOT, parts[0], FileState.PARTIAL, parts[1], writer_id=str(parts[2])
        )
    ),
    st.tuples(
        st.sampled_from(sorted(names.PLAIN_KINDS)), st.sampled_from([FileState.NORMAL, FileState.TEMPORARY])
    ).map(lambda parts: FileName(parts[0], state=parts[1])),
    st.tuples(
        st.sampled_from([FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX]),
        st.integers(0, INT64_MAX),
        uuids,
    ).map(lambda parts: FileName(parts[0], parts[1], remote_segment_id=parts[2])),
)

# ------------------------------------------------------------------ damage, and whole directories


@st.composite
def damaged(draw: st.DrawFn, intact: Strategy[bytes]) -> bytes:
    """Bytes with some of them changed, put in, taken out, or cut off."""
    data = bytearray(draw(intact))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        kind = draw(st.sampled_from(["change", "put in", "take out", "cut off"]))
        if kind == "change" and data:
            data[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
        elif kind == "put in":
            data[at:at] = draw(st.binary(min_size=1, max_size=9))
        elif kind == "take out":
            del data[at : at + draw(st.integers(1, 9))]
        elif kind == "cut off":
            del data[at:]
    return bytes(data)


@st.composite
def log_directories(
    draw: st.DrawFn, max_partitions: int = 3, magics: tuple[int, ...] = (0, 1, 2)
) -> dict[str, bytes]:
    """A whole small log directory, relative path to bytes; its parts agree, its indexes are empty."""
    partitions = draw(st.lists(topic_partitions, min_size=1, max_size=max_partitions, unique=True))
    files = {
        str(FileKind.META_PROPERTIES): meta_properties.build(
            meta_properties.create(0, node_id=draw(st.integers(0, 9)))
        ),
        str(FileKind.CLEAN_SHUTDOWN): clean_shutdown.build(draw(clean_shutdowns)),
    }
    for kind in (FileKind.RECOVERY_POINT_CHECKPOINT, FileKind.REPLICATION_CHECKPOINT):
        entries = tuple(checkpoints.OffsetEntry(partition, 0) for partition in partitions)
        files[str(kind)] = checkpoints.build_offsets(checkpoints.OffsetCheckpoint(entries))
    for partition in partitions:
        base = draw(st.sampled_from([0, 7, 10**12]))
        epochs = checkpoints.EpochCheckpoint((checkpoints.EpochEntry(0, base),))
        topic_id = draw(partition_metadatas)
        files |= {
            f"{partition}/{names.segment_file(FileKind.LOG, base)}": draw(segments(base, magics=magics)),
            f"{partition}/{names.segment_file(FileKind.OFFSET_INDEX, base)}": b"",
            f"{partition}/{names.segment_file(FileKind.TIME_INDEX, base)}": b"",
            f"{partition}/{FileKind.LEADER_EPOCH_CHECKPOINT}": checkpoints.build_epochs(epochs),
            f"{partition}/{FileKind.PARTITION_METADATA}": partition_metadata.build(topic_id),
        }
    return files
