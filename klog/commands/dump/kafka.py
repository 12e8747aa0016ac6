"""`--format kafka`: what `kafka-dump-log` of Kafka 3.9 prints for the same files and flags, byte for byte.

stdout and stderr are the tool's own text in the tool's order, so that scripts which read it work on. Where
the tool dies by an exception, what it had printed stands and one error of klog's follows.
"""

from __future__ import annotations

import sys
from typing import BinaryIO

from klog.commands.dump import java, kafka_index
from klog.commands.dump.kafka_log import LogDump, size_of
from klog.commands.dump.kafka_parsers import parser_of
from klog.commands.dump.pen import Pen
from klog.commands.dump.plan import DumpPlan
from klog.formats.errors import KlogError
from klog.storage.files import open_for_reading


def run(plan: DumpPlan, out: BinaryIO) -> int:
    """Dump all files of the plan; 1 if the tool would have complained. Raises KlogError where it dies."""
    pen = Pen(out)
    errors = kafka_index.IndexErrors()
    sound = True
    for file in plan.files:
        try:
            sound &= _dump(plan, file.path, errors, pen)
        except KlogError as error:
            raise error.at(file.path) from None
        finally:
            pen.flush()
    return 0 if sound and not errors.report() else 1


def _dump(plan: DumpPlan, path: str, errors: kafka_index.IndexErrors, pen: Pen) -> bool:
    shown = java.java_path(path)
    pen.write(f"Dumping {shown}\n")
    name = kafka_index.base_name(path)
    suffix = name[name.rindex(".") :] if "." in name else ""
    limit_bytes = plan.max_decompressed_bytes
    if suffix in {".log", ".checkpoint"}:
        return _dump_log(plan, path, name, errors, pen)
    if suffix == ".index":
        kafka_index.dump_index(path, name, plan.kafka, errors, pen, limit_bytes)
    elif suffix == ".timeindex":
        kafka_index.dump_time_index(path, name, plan.kafka, errors, pen, limit_bytes)
    elif suffix == ".snapshot":
        return kafka_index.dump_snapshot(path, pen)
    elif suffix == ".txnindex":
        kafka_index.dump_txn_index(path, name, pen)
    else:
        pen.flush()
        print(f"Ignoring unknown file {shown}", file=sys.stderr)  # noqa: T201 (the tool's own words)
        return False
    return True


def _dump_log(plan: DumpPlan, path: str, name: str, errors: kafka_index.IndexErrors, pen: Pen) -> bool:
    notes, parser = parser_of(plan.kafka)
    pen.write(notes)
    dump = LogDump(path, plan.kafka, parser, pen, plan.max_decompressed_bytes)
    with open_for_reading(path) as file:
        dump.run(file, name, size_of(file))
    if dump.gaps:
        errors.gaps.setdefault(java.absolute_path(path), []).extend(dump.gaps)
    return True
