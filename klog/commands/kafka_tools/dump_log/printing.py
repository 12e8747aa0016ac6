"""`--format kafka`: prints what `kafka-dump-log` of Kafka 3.9 prints for the same files and flags.

stdout and stderr are the tool's text, byte for byte and in its order, so that scripts can go on reading them.
If the tool ends with an exception, klog prints the same output up to there, then one error of its own.
"""

from __future__ import annotations

from typing import BinaryIO

from klog.commands.kafka_tools.dump_log import index, java
from klog.commands.kafka_tools.dump_log.gzipped_copies import size_of
from klog.commands.kafka_tools.dump_log.index_errors import IndexErrors, print_error
from klog.commands.kafka_tools.dump_log.log import LogDump
from klog.commands.kafka_tools.dump_log.parsers import parser_of
from klog.commands.kafka_tools.dump_log.snapshot import dump_snapshot
from klog.commands.shared.records.output_buffer import OutputBuffer
from klog.commands.shared.records.plan import DumpPlan
from klog.formats.errors import KlogError
from klog.storage.files.files import open_for_reading


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
