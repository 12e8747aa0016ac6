"""`--format jsonl`: every field of every record and batch equals what Kafka's own classes read."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from klog.commands.offline.dump import jsonl
from klog.commands.shared.records.plan import BytesMode, DumpFile, DumpPlan, Rows, Selection
from klog.formats.errors import KlogError
from klog.formats.names import FileKind
from tests import corpora

RECORD_FIELDS = [
    "file",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "key",
    "value",
    "headers",
    "magic",
    "codec",
    "isTransactional",
    "isControl",
    "controlType",
    "coordinatorEpoch",
    "producerId",
    "producerEpoch",
    "sequence",
    "leaderEpoch",
    "batchBaseOffset",
    "batchPosition",
    "recordSize",
]
BATCH_FIELDS = [
    "file",
    "position",
    "size",
    "baseOffset",
    "lastOffset",
    "magic",
    "count",
    "maxTimestamp",
    "timestampType",
    "codec",
    "checksum",
    "valid",
    "error",
    "producerId",
    "producerEpoch",
    "baseSequence",
    "lastSequence",
    "partitionLeaderEpoch",
    "isTransactional",
    "isControl",
    "deleteHorizonMs",
]

PARTITIONS = [
    partition
    for log_dir in corpora.log_dirs()
    for partition in log_dir.partitions()
    if partition.has_expected
]


def dumped(plan: DumpPlan) -> list[dict[str, Any]]:
    out = io.BytesIO()
    jsonl.run(plan, out)
    return [json.loads(line) for line in out.getvalue().decode("utf-8").split("\n")[:-1]]


def plan_of(path: Path, **options: Any) -> DumpPlan:
    file = DumpFile(str(path), FileKind.LOG, "t", 0, None)
    return DumpPlan((file,), bytes_mode=BytesMode.BASE64, **options)


def same_bytes(shown: str | None, expected: dict[str, Any], name: str) -> bool:
    if name in expected:
        return shown == expected[name]
    assert shown is not None
    data = base64.b64decode(shown, validate=True)
    return (len(data), hashlib.sha256(data).hexdigest()) == (
        expected[f"{name}_len"],
        expected[f"{name}_sha256"],
    )


def grouped(rows: list[dict[str, Any]], field: str) -> dict[Any, list[dict[str, Any]]]:
    found: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row[field], []).append(row)
    return found


def check_batch(shown: list[dict[str, Any]], expected: list[dict[str, Any]]) -> int:
    """Compare the records of one batch. If Kafka's reader failed in it, klog may have read further."""
    threw = "iterationError" in expected[-1]
    oracles = expected[:-1] if threw else expected
    assert len(shown) >= len(oracles) if threw else len(shown) == len(oracles)
    for row, oracle in zip(shown, oracles, strict=False):
        assert list(row) == RECORD_FIELDS
        assert same_bytes(row["key"], oracle, "key")
        assert same_bytes(row["value"], oracle, "value")
        for name in RECORD_FIELDS[3:]:
            if name not in ("key", "value"):
                assert row[name] == oracle.get(name), (name, row, oracle)
    return len(oracles)


def scan_ends(partition: corpora.PartitionDirectory) -> dict[str, int]:
    """The position at which Kafka's reader stopped, by name of the file."""
    return {row["file"]: row["endOfLastBatch"] for row in partition.expected_batches() if "scanError" in row}


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_records_equal_those_of_kafkas_own_reader(partition: corpora.PartitionDirectory) -> None:
    expected = partition.expected_records()
    compared = 0
    for name, rows in grouped(expected, "file").items():
        shown = grouped(dumped(plan_of(partition.path / name)), "batchPosition")
        oracles = grouped(rows, "batchPosition")
        end = scan_ends(partition).get(name, math.inf)
        assert all(position in oracles or position >= end for position in shown)
        compared += sum(check_batch(shown.get(position, []), batch) for position, batch in oracles.items())
    assert compared == sum("iterationError" not in row for row in expected)


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_batches_equal_those_of_kafkas_own_reader(partition: corpora.PartitionDirectory) -> None:
    for name, rows in grouped(partition.expected_batches(), "file").items():
        expected = [row for row in rows if "position" in row]
        shown = dumped(plan_of(partition.path / name, rows=Rows.BATCHES))
        # If a wrapper cannot be decoded, Kafka's reader finds no base offset and ends; klog reads on.
        assert len(shown) == len(expected) or name in scan_ends(partition)
        for row, oracle in zip(shown, expected, strict=False):
            assert list(row) == BATCH_FIELDS
            assert (row["error"] is None) == oracle["valid"]
            for field in BATCH_FIELDS[1:]:
                if field != "error" and (field, row[field]) != ("baseOffset", None):
                    assert row[field] == oracle[field], (field, row, oracle)
            # It is unknown only if the compressed set around it cannot be decoded.
            assert row["baseOffset"] is not None or partition.corpus.is_corrupt


def test_the_comparison_saw_every_corpus() -> None:
    assert {partition.corpus.name for partition in PARTITIONS} == {
        corpus.name for corpus in corpora.corpora()
    }
    assert len(PARTITIONS) > 200


HEADERS_LOG = corpora.Corpus("k39-edge").log_dir().partition("e-headers-0").files(".log")[0]
TXN = corpora.Corpus("k39-txn").log_dir()


def raw_fields(path: Path) -> list[tuple[Any, Any, Any]]:
    def raw(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text)

    return [
        (raw(row["key"]), raw(row["value"]), [(raw(key), raw(value)) for key, value in row["headers"]])
        for row in dumped(plan_of(path))
    ]


def decoded(shown: Any, mode: BytesMode, raw: bytes | None) -> bool:
    if raw is None:
        return shown is None
    if mode is BytesMode.NONE:
        return shown == {"size": len(raw)}
    if mode is BytesMode.HEX:
        return shown == raw.hex()
    try:
        return shown == raw.decode()
    except UnicodeDecodeError:
        if mode is BytesMode.AUTO:
            return shown == {"base64": base64.b64encode(raw).decode()}
        return isinstance(shown, str) and "\ufffd" in shown


@pytest.mark.parametrize("mode", [BytesMode.AUTO, BytesMode.UTF8, BytesMode.HEX, BytesMode.NONE])
@pytest.mark.parametrize(
    "path", [HEADERS_LOG, *TXN.partition("__transaction_state-0").files(".log")], ids=str
)
def test_each_mode_prints_keys_values_and_headers(mode: BytesMode, path: Path) -> None:
    rows = dumped(DumpPlan((DumpFile(str(path), FileKind.LOG),), bytes_mode=mode))
    raw = raw_fields(path)
    assert rows
    for row, (key, value, headers) in zip(rows, raw, strict=True):
        assert decoded(row["key"], mode, key)
        assert decoded(row["value"], mode, value)
        for (name, content), (raw_name, raw_content) in zip(row["headers"], headers, strict=True):
            assert decoded(name, mode, raw_name)
            assert decoded(content, mode, raw_content)


SEGMENTS = corpora.Corpus("k39-codecs").log_dir().partition("t-none-0").files(".log")


def test_a_limit_counts_rows_over_all_files() -> None:
    files = tuple(DumpFile(str(path), FileKind.LOG) for path in SEGMENTS)
    everything = dumped(DumpPlan(files))
    assert len(everything) > 7
    assert dumped(DumpPlan(files, selection=Selection(limit=7))) == everything[:7]
    batches = dumped(DumpPlan(files, rows=Rows.BATCHES))
    assert dumped(DumpPlan(files, rows=Rows.BATCHES, selection=Selection(limit=3))) == batches[:3]


def test_a_selection_is_a_part_of_the_full_dump() -> None:
    files = tuple(DumpFile(str(path), FileKind.LOG, "t-txn", 0, int(path.stem)) for path in SEGMENTS)
    everything = dumped(DumpPlan(files))
    some = everything[len(everything) // 3]
    first, last = some["offset"], everything[len(everything) // 2]["offset"]
    by_offset = dumped(DumpPlan(files, selection=Selection(first_offset=first, last_offset=last)))
    assert by_offset == [row for row in everything if first <= row["offset"] <= last]
    keyed = next(row for row in everything if isinstance(row["key"], str) and not row["isControl"])
    by_key = dumped(DumpPlan(files, selection=Selection(key=keyed["key"].encode())))
    assert by_key == [row for row in everything if row["key"] == keyed["key"]]
    found = dumped(DumpPlan(files, selection=Selection(grep=re.compile(re.escape(keyed["key"])))))
    assert all(row in found for row in by_key)


def test_a_damaged_batch_is_reported_and_reading_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    valid = SEGMENTS[0].read_bytes()
    batches = dumped(plan_of(SEGMENTS[0], rows=Rows.BATCHES))
    assert len(batches) > 2
    damaged = tmp_path / SEGMENTS[0].name
    position = batches[1]["position"] + 30
    damaged.write_bytes(valid[:position] + bytes([valid[position] ^ 1]) + valid[position + 1 :])
    out = io.BytesIO()
    assert jsonl.run(plan_of(damaged, rows=Rows.BATCHES), out) == 1
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [row["valid"] for row in rows] == [number != 1 for number in range(len(batches))]
    assert str(rows[1]["checksum"]) in rows[1]["error"]
    assert jsonl.run(plan_of(damaged), io.BytesIO()) == 1
    assert str(batches[1]["position"]) in capsys.readouterr().err
    with pytest.raises(KlogError, match="checksum") as stopped:
        jsonl.run(plan_of(damaged, strict=True), io.BytesIO())
    assert stopped.value.position_bytes == batches[1]["position"]


def test_a_valid_partition_exits_with_zero() -> None:
    files = tuple(DumpFile(str(path), FileKind.LOG) for path in SEGMENTS)
    assert jsonl.run(DumpPlan(files), io.BytesIO()) == 0


@pytest.mark.parametrize("name", ["k39-txn", "k39-epochs", "k39-edge", "k4-kraft"])
def test_every_other_kind_of_file_is_shown_with_its_entries(name: str) -> None:
    from klog.formats.names import parse_file

    shown = 0
    log_dir = corpora.Corpus(name).log_dirs()[0]
    for path in sorted(log_dir.path.rglob("*")):
        if not path.is_file():
            continue
        kind = parse_file(path.name).kind
        if kind in (FileKind.LOG, FileKind.LOCK, FileKind.METADATA_SNAPSHOT, FileKind.BOOTSTRAP_SNAPSHOT):
            continue
        rows = dumped(DumpPlan((DumpFile(str(path), kind, base_offset=0),)))
        assert all(row["file"] == str(path) and len(row) > 1 for row in rows)
        shown += len(rows)
    assert shown > 0
