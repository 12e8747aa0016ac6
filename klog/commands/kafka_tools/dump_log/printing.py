"""`--format kafka`: prints what `kafka-dump-log` of Kafka 3.9 prints for the same files and flags.

stdout and stderr are the tool's text, byte for byte and in its order, so that scripts can go on reading them.
If the tool ends with an exception, klog prints the same output up to there, then one error of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, Final

from klog.commands.kafka_tools.dump_log import index, java
from klog.commands.kafka_tools.dump_log.gzipped_copies import size_of
from klog.commands.kafka_tools.dump_log.index_errors import IndexErrors, print_error
from klog.commands.kafka_tools.dump_log.log import LogDump
from klog.commands.kafka_tools.dump_log.parsers import parser_of
from klog.commands.shared.records.output_buffer import OutputBuffer
from klog.commands.shared.records.plan import DumpPlan
from klog.formats.checksums import confirm_crc32c, crc32c
from klog.formats.errors import KlogError
from klog.formats.wrapping import sequence_before
from klog.storage.files.files import open_for_reading, read_whole


def run(plan: DumpPlan, out: BinaryIO) -> int:
    """Dump all files of the plan; returns 1 if the tool reports errors, else 0.

    Raises KlogError if the tool ends with an exception.
    """
    buffer = OutputBuffer(out)
    errors = IndexErrors()
    valid = True
    for file in plan.files:
        try:
            valid &= _dump(plan, file.path, errors, buffer)
        except KlogError as error:
            raise error.at(file.path) from None
        finally:
            buffer.flush()
    return 0 if valid and not errors.report() else 1


def _dump(plan: DumpPlan, path: str, errors: IndexErrors, buffer: OutputBuffer) -> bool:
    shown = java.java_path(path)
    buffer.write(f"Dumping {shown}\n")
    name = index.base_name(path)
    suffix = name[name.rindex(".") :] if "." in name else ""
    indexes = index.IndexDump(plan.kafka, errors, buffer, plan.max_decompressed_bytes)
    if suffix in {".log", ".checkpoint"}:
        return _dump_log(plan, path, name, errors, buffer)
    if suffix == ".index":
        indexes.offset_index(path, name)
    elif suffix == ".timeindex":
        indexes.time_index(path, name)
    elif suffix == ".snapshot":
        return dump_snapshot(path, buffer)
    elif suffix == ".txnindex":
        index.dump_txn_index(path, name, buffer)
    else:
        buffer.flush()
        print_error(f"Ignoring unknown file {shown}")
        return False
    return True


def _dump_log(plan: DumpPlan, path: str, name: str, errors: IndexErrors, buffer: OutputBuffer) -> bool:
    notes, parser = parser_of(plan.kafka)
    buffer.write(notes)
    dump = LogDump(path, plan.kafka, parser, buffer, plan.max_decompressed_bytes)
    with open_for_reading(path) as file:
        size_bytes, damage = size_of(file)
        dump.run(file, name, size_bytes)
    if dump.gaps:
        errors.gaps.setdefault(java.absolute_path(path), []).extend(dump.gaps)
    if damage is not None:
        raise damage
    return True


# -- Prints producer snapshots as Kafka 3.9's `kafka-dump-log` does ------------------------------------------

_SNAPSHOT_FIELDS: Final = (
    ("producer_id", ">q"),
    ("epoch", ">h"),
    ("last_sequence", ">i"),
    ("last_offset", ">q"),
    ("offset_delta", ">i"),
    ("timestamp", ">q"),
    ("coordinator_epoch", ">i"),
    ("current_txn_first_offset", ">q"),
)


class _SnapshotError(KlogError):
    """An error that the tool prints on stderr before it goes on."""


def _snapshot_entries(data: bytes) -> Iterator[list[int]]:
    at = 0
    head = []
    for name, layout in (("version", ">h"), ("crc", ">I"), ("producer_entries", ">i")):
        head.append(_field(data, at, name, layout))
        at += struct.calcsize(layout)
    version, crc, count = head
    within = "Error reading field 'producer_entries': "
    if count < 0:
        raise _SnapshotError(
            f"Snapshot failed schema validation: {within}Array size {count} cannot be negative"
        )
    if count > len(data) - at:
        raise _SnapshotError(
            f"Snapshot failed schema validation: {within}Error reading array of size {count},"
            f" only {len(data) - at} bytes available"
        )
    entries = []
    for _ in range(count):
        entry = []
        for name, layout in _SNAPSHOT_FIELDS:
            entry.append(_field(data, at, name, layout, within))
            at += struct.calcsize(layout)
        entries.append(entry)
    if version != 1:
        raise _SnapshotError(f"Snapshot contained an unknown file version {version}")
    computed = crc32c(data[6:])
    if crc != computed:
        confirm_crc32c(data[6:], computed)
        raise _SnapshotError(
            f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {crc}. Computed crc: {computed}"
        )
    return iter(entries)


def _field(data: bytes, at: int, name: str, layout: str, within: str = "") -> int:
    if at + struct.calcsize(layout) > len(data):
        raise _SnapshotError(
            f"Snapshot failed schema validation: {within}Error reading field '{name}':"
            " java.nio.BufferUnderflowException"
        )
    number: int = struct.unpack_from(layout, data, at)[0]
    return number


def dump_snapshot(path: str, buffer: OutputBuffer) -> bool:
    """Print a `.snapshot`; returns whether it is valid. If not, the tool's error is on stderr."""
    try:
        entries = list(_snapshot_entries(read_whole(path)))
    except _SnapshotError as error:
        buffer.flush()
        print_error(error.what)
        return False
    for producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator, first in entries:
        transaction = f"OptionalLong[{first}]" if first >= 0 else "OptionalLong.empty"
        buffer.write(
            f"producerId: {producer_id} producerEpoch: {epoch} coordinatorEpoch: {coordinator}"
            f" currentTxnFirstOffset: {transaction} lastTimestamp: {timestamp} "
        )
        if last_offset >= 0:
            buffer.write(
                f"firstSequence: {sequence_before(last_sequence, delta)} lastSequence: {last_sequence}"
                f" lastOffset: {last_offset} offsetDelta: {delta} timestamp: {timestamp}"
            )
        buffer.write("\n")
        buffer.flush_if_full()
    return True
