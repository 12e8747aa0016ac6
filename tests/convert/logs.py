"""Shared by the tests of conversion: runs one on a directory, and reads what a log holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from klog.convert.finishing import PartitionOutcome
from klog.convert.options import ConvertOptions
from klog.convert.partition_plan import PartitionPlan
from klog.convert.planning import plan_partition
from klog.convert.run_convert import pool, run_convert
from klog.formats import compression
from klog.formats.compression import ZSTD
from klog.formats.constants import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from klog.formats.wrapping import sequence_after
from klog.kernel import kernel
from klog.kernel.columns import BatchTable, RecordTable

ALL = ConvertOptions(codec=ZSTD, converts_active=True)

Values = dict[str, Any]


def planned(directory: Path, options: ConvertOptions, target: Path | None = None) -> PartitionPlan:
    return plan_partition(str(directory), str(target or directory), options, high_watermark=None)


def converted(
    directory: Path, options: ConvertOptions = ALL, *, target: Path | None = None, verifies: bool = True
) -> PartitionOutcome:
    """Convert a partition directory, in this process. Raises the error of its tasks."""
    plan = planned(directory, options, target)
    ((_, outcome),) = run_convert([plan], pool(1), verifies=verifies)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def batches_of(directory: Path, suffix: str = ".log") -> list[tuple[bytes, BatchTable, int]]:
    """Every batch of the segments of a directory."""
    found = []
    for path in sorted(directory.glob(f"*{suffix}")):
        data = path.read_bytes()
        table = BatchTable()
        kernel.scan(data, 0, True, table)
        assert table.consumed_bytes == len(data), path
        assert kernel.verify(data, table) == 0, path
        found += [(data, table, row) for row in range(len(table))]
    return found


def records_of(directory: Path) -> list[Values]:
    """Every record with all that a consumer, a broker or a replica can see of it.

    Messages of magic 0 and 1 are described as they are expected after a conversion.
    """
    return [record for batch in batches_of(directory) for record in records_in(*batch)]


def records_in(data: bytes, table: BatchTable, row: int) -> list[Values]:
    """The records of one batch."""
    records, payload = RecordTable(), data
    if table.attributes[row] & CODEC_MASK and table.count[row]:
        start, size = kernel.payload_span(data, table, row)
        codec = table.attributes[row] & CODEC_MASK
        payload = compression.decompress(codec, data[start : start + size], magic=table.magic[row])
        assert kernel.decode_payload(payload, table, row, records)
    else:
        kernel.decode(data, table, row, row + 1, records)
    assert records.problem is None
    attributes = table.attributes[row] & ~CODEC_MASK
    if table.magic[row] == 0:
        attributes = 0
    sequence = table.base_sequence[row]
    return [
        {
            "offset": records.offset[at],
            "timestamp": records.timestamp[at],
            "key": _span(payload, records.key_start[at], records.key_size[at]),
            "value": _span(payload, records.value_start[at], records.value_size[at]),
            "headers": kernel.headers(payload, records.headers_start[at], records.header_count[at]),
            "logAppendTime": bool(attributes & TIMESTAMP_TYPE_BIT),
            "transactional": bool(attributes & TRANSACTIONAL_BIT),
            "control": bool(attributes & CONTROL_BIT),
            "horizon": table.base_timestamp[row] if attributes & DELETE_HORIZON_BIT else None,
            "producer": (table.producer_id[row], table.producer_epoch[row]),
            "sequence": sequence
            if sequence < 0
            else sequence_after(sequence, records.offset[at] - table.base_offset[row]),
            "leaderEpoch": table.leader_epoch[row] if table.magic[row] >= 2 else 0,
        }
        for at in range(len(records))
    ]


def _span(payload: bytes, start: int, size: int) -> bytes | None:
    return payload[start : start + size] if size >= 0 else None


def log_bytes(directory: Path) -> bytes:
    """The segments of a directory, one after the other."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def contents(directory: Path) -> dict[str, bytes]:
    """All files of a directory by name."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def with_codec(codec: int | None, **fields: Any) -> ConvertOptions:
    return replace(ALL, codec=codec, **fields)


def state_of(directory: Path) -> Values:
    """The state of an unfinished conversion."""
    state: Values = json.loads((directory / "klog-convert.json").read_text("utf-8"))
    return state
