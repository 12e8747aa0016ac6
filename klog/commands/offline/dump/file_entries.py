"""Parses files without records to entries: indexes, snapshots, checkpoints, identity files.

Each entry is a dict of fields with Kafka's names, and one JSON object in a dump. A file without entries gives
one dict. Every entry of an index is given, valid or not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

from klog.commands.shared.records.output_buffer import OutputBuffer
from klog.commands.shared.records.plan import DumpFile
from klog.formats.errors import FormatError
from klog.formats.names import OFFSET_CHECKPOINTS, FileKind
from klog.storage.files.files import read_small
from klog.storage.indexes.index_file import index_entries, read_index

Entry = dict[str, Any]
Entries = Iterable[Entry]


def show(file: DumpFile, buffer: OutputBuffer, limit: int | None) -> int:
    """Write the entries of one file as JSON Lines; returns how many there are.

    Raises FormatError, StorageError.
    """
    shown = 0
    for fields in islice(entries_of(file), limit):
        line = json.dumps({"file": file.path, **fields}, ensure_ascii=False, separators=(",", ":"))
        buffer.write(line + "\n")
        buffer.flush_if_full()
        shown += 1
    return shown


def entries_of(file: DumpFile) -> Entries:
    """The entries of one file. Raises FormatError, StorageError."""
    parse = _PARSERS.get(file.kind)
    if parse is None:
        raise FormatError(f"a {file.kind} file cannot be shown", file=file.path)
    if file.kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
        return parse(file, read_index(file.path, file.kind).entries)
    return parse(file, read_small(file.path))


def _offset_index(file: DumpFile, data: bytes) -> Entries:
    base = file.base_offset or 0
    for relative, position in index_entries(FileKind.OFFSET_INDEX, data):
        yield {"offset": base + relative, "position": position}


def _time_index(file: DumpFile, data: bytes) -> Entries:
    base = file.base_offset or 0
    for timestamp, relative in index_entries(FileKind.TIME_INDEX, data):
        yield {"timestamp": timestamp, "offset": base + relative}


def _txn_index(_: DumpFile, data: bytes) -> Entries:
    from klog.formats import transaction_index

    names = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
    for entry in transaction_index.parse(data):
        yield {name: entry[name] for name in names}


def _snapshot(_: DumpFile, data: bytes) -> Entries:
    from klog.formats import producer_snapshot

    for entry in producer_snapshot.parse(data).producers:
        has_batch = entry.lastOffset >= 0
        transaction = entry.currentTxnFirstOffset
        yield {
            "producerId": entry.producerId,
            "producerEpoch": entry.producerEpoch,
            "coordinatorEpoch": entry.coordinatorEpoch,
            "currentTxnFirstOffset": transaction if transaction >= 0 else None,
            "lastTimestamp": entry.timestamp,
            "lastSequence": entry.lastSequence if has_batch else None,
            "lastOffset": entry.lastOffset if has_batch else None,
            "offsetDelta": entry.offsetDelta if has_batch else None,
        }


def _offsets(_: DumpFile, data: bytes) -> Entries:
    from klog.formats import checkpoints

    for entry in checkpoints.parse_offsets(data).entries:
        yield {
            "topic": entry.partition.topic,
            "partition": entry.partition.partition,
            "offset": entry.offset,
        }


def _epochs(_: DumpFile, data: bytes) -> Entries:
    from klog.formats import checkpoints

    for entry in checkpoints.parse_epochs(data).entries:
        yield {"epoch": entry.epoch, "startOffset": entry.start_offset}


def _meta_properties(_: DumpFile, data: bytes) -> Entries:
    from klog.formats import meta_properties

    lines = meta_properties.parse(data).lines
    yield {"properties": {line.key: line.value for line in lines if line.key is not None}}


def _partition_metadata(_: DumpFile, data: bytes) -> Entries:
    from klog.formats import partition_metadata

    metadata = partition_metadata.parse(data)
    yield {"version": metadata.version, "topicId": metadata.topic_id}


def _clean_shutdown(_: DumpFile, data: bytes) -> Entries:
    from klog.formats import clean_shutdown

    marker = clean_shutdown.parse(data)
    yield {"version": marker.version, "brokerEpoch": marker.broker_epoch}


def _quorum_state(file: DumpFile, data: bytes) -> Entries:
    try:
        state = json.loads(data)
    except ValueError as error:
        raise FormatError(f"quorum state is not JSON: {error}", file=file.path) from error
    yield {"quorumState": state}


_PARSERS: Final[dict[FileKind, Callable[[DumpFile, bytes], Entries]]] = {
    FileKind.OFFSET_INDEX: _offset_index,
    FileKind.TIME_INDEX: _time_index,
    FileKind.TXN_INDEX: _txn_index,
    FileKind.PRODUCER_SNAPSHOT: _snapshot,
    FileKind.LEADER_EPOCH_CHECKPOINT: _epochs,
    **dict.fromkeys(OFFSET_CHECKPOINTS, _offsets),
    FileKind.META_PROPERTIES: _meta_properties,
    FileKind.PARTITION_METADATA: _partition_metadata,
    FileKind.CLEAN_SHUTDOWN: _clean_shutdown,
    FileKind.QUORUM_STATE: _quorum_state,
}
