"""Both kernels read in every log of real Kafka what Kafka's own reader reads."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import import_module
from itertools import groupby
from types import ModuleType
from typing import Any

import pytest

from klog.formats.compression import codec_name
from klog.formats.constants import CODEC_MASK, CONTROL_BIT, DELETE_HORIZON_BIT, TIMESTAMP_TYPE_BIT
from klog.kernel.columns import STOP_BAD_SIZE, STOP_NEED_BYTES
from tests import corpora
from tests.formats import reading

JsonObject = dict[str, Any]
PARTITIONS = [partition for partition in corpora.partitions() if partition.has_expected]


@pytest.fixture(params=["_kernel", "_pykernel"])
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    return import_module(f"klog.kernel.{request.param}")


def of_files(lines: list[JsonObject]) -> dict[str, list[JsonObject]]:
    by_file: dict[str, list[JsonObject]] = {}
    for line in lines:
        if "file" in line:
            by_file.setdefault(line["file"], []).append(line)
    return by_file


def timestamp_type(row: JsonObject) -> str:
    if row["magic"] == 0:
        return "NoTimestampType"
    return "LogAppendTime" if row["attributes"] & TIMESTAMP_TYPE_BIT else "CreateTime"


def batch_line(row: JsonObject) -> JsonObject:
    is_new = row["magic"] >= 2
    has_horizon = is_new and row["attributes"] & DELETE_HORIZON_BIT
    return {
        "position": row["position"],
        "size": row["size"],
        "baseOffset": row["base_offset"],
        "lastOffset": row["last_offset"],
        "magic": row["magic"],
        "count": row["count"] if is_new else None,
        "maxTimestamp": row["max_timestamp"],
        "timestampType": timestamp_type(row),
        "codec": codec_name(row["attributes"] & CODEC_MASK),
        "checksum": row["crc"],
        "valid": bool(row["valid"]),
        "producerId": row["producer_id"],
        "producerEpoch": row["producer_epoch"],
        "baseSequence": row["base_sequence"],
        "partitionLeaderEpoch": row["leader_epoch"],
        "isControl": bool(is_new and row["attributes"] & CONTROL_BIT),
        "deleteHorizonMs": row["base_timestamp"] if has_horizon else None,
    }


def text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def record_line(record: JsonObject, expected: JsonObject) -> JsonObject:
    """The record in the form of the expected line, in which long keys and values are length and hash."""
    line = {
        "offset": record["offset"],
        "timestamp": record["timestamp"],
        "headers": [[text(key), text(value)] for key, value in record["headers"]],
        "recordSize": record["record_size"],
    }
    for name in ("key", "value"):
        if name in expected:
            line[name] = text(record[name])
        else:
            line[f"{name}_len"] = len(record[name])
            line[f"{name}_sha256"] = hashlib.sha256(record[name]).hexdigest()
    return line


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_every_batch_is_as_kafka_says(partition: corpora.PartitionDirectory, kernel: ModuleType) -> None:
    expected = of_files(partition.expected_batches())
    assert expected
    for name, lines in expected.items():
        data = (partition.path / name).read_bytes()
        found = reading.read(kernel, data)
        batches = [line for line in lines if "position" in line]
        for batch, line in zip(found.batches, batches, strict=False):
            got = batch_line(batch.row)
            assert got == {key: line.get(key) for key in got}
        compare_end(found, len(batches), len(data), lines[-1])


def compare_end(found: reading.ReadLog, batches: int, size_bytes: int, end: JsonObject) -> None:
    assert size_bytes == end["fileSize"]
    too_small = re.search(r"Found record size (-?\d+) smaller", end.get("scanError", ""))
    if "scanError" in end and not too_small:
        # Kafka's reader ends at a batch that does not decompress; klog continues after it.
        (damaged,) = (batch for batch in found.batches if batch.row["position"] == end["endOfLastBatch"])
        assert damaged.problem is not None
        return
    assert len(found.batches) == batches
    assert found.consumed_bytes == end["endOfLastBatch"]
    assert found.stop == (STOP_BAD_SIZE if too_small else STOP_NEED_BYTES)
    assert found.stop_size == (int(too_small[1]) if too_small else 0)


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_every_record_is_as_kafka_says(partition: corpora.PartitionDirectory, kernel: ModuleType) -> None:
    gave_up = {line["file"] for line in partition.expected_batches() if "scanError" in line}
    expected = of_files(partition.expected_records())
    for name in of_files(partition.expected_batches()):
        found = reading.read(kernel, (partition.path / name).read_bytes())
        batches = {batch.row["position"]: batch for batch in found.batches}
        with_records = {position for position, batch in batches.items() if batch.records or batch.problem}
        seen = set()
        for position, lines in groupby(expected.get(name, ()), lambda line: line.get("batchPosition")):
            assert position is not None
            seen.add(position)
            compare_batch(batches[position], list(lines))
        if name not in gave_up:
            assert seen == with_records


def compare_batch(batch: reading.ReadBatch, lines: list[JsonObject]) -> None:
    records = [line for line in lines if "iterationError" not in line]
    for record, line in zip(batch.records, records, strict=False):
        got = record_line(record, line)
        assert got == {key: line[key] for key in got}
    if len(records) == len(lines):
        assert batch.problem is None
        assert len(batch.records) == len(records)
    else:  # Kafka throws in this batch: klog has a problem there, and at least the records before
        assert batch.problem is not None
        assert len(batch.records) >= len(records)
