"""Tables, summaries and Parquet have the records that Kafka's reader finds."""

from __future__ import annotations

import io
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import klog as library
from klog.commands.offline.dump import parquet, summary, table
from klog.commands.offline.dump.table_writer import CHUNK_ROWS, Column, Row, TableWriter
from klog.commands.shared.cells import Cell, human_bytes, human_span, human_time, preview
from klog.commands.shared.records.plan import BytesMode, DumpPlan, Rows, Selection
from klog.storage.files.distributions import Distribution, TimeHistogram
from klog.storage.files.kafka_files import expand
from tests import corpora

SOUND = [
    partition
    for partition in corpora.partitions()
    if partition.has_expected and not partition.corpus.is_corrupt and partition.files(".log")
]


def plan(*paths: Path, all_kinds: bool = False, **chosen: object) -> DumpPlan:
    return DumpPlan(tuple(expand(map(str, paths), all_kinds=all_kinds)), **chosen)  # type: ignore[arg-type]


def shown(wanted: DumpPlan) -> tuple[int, list[str]]:
    out = io.BytesIO()
    code = table.run(wanted, out)
    return code, out.getvalue().decode().splitlines()


@pytest.fixture(autouse=True)
def _utc() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def test_a_table_has_one_row_per_record_with_the_main_fields() -> None:
    code, lines = shown(plan(corpora.Corpus("k39-txn").path / "logs" / "__consumer_offsets-0"))
    assert code == 0
    assert lines[0].endswith("00000000000000000000.log  196 B")
    assert lines[1].split() == [
        "offset",
        "time",
        "(UTC)",
        "key",
        "value",
        "size",
        "producer",
        "epoch",
        "notes",
    ]
    assert lines[2].startswith("     0  2026-11-21 09:17:46.093  0x0001000774786e2d")
    assert lines[2].endswith("57 B  1:0 #0        0  transactional")
    assert lines[3].split() == [
        "1",
        "2026-11-21",
        "09:17:46.103",
        "control",
        "ABORT",
        "17",
        "B",
        "1:0",
        "0",
        "control,",
        "transactional",
    ]


@pytest.mark.parametrize("partition", SOUND[::6], ids=str)
def test_a_table_has_as_many_rows_as_kafkas_reader_finds(partition: corpora.PartitionDirectory) -> None:
    for path in partition.files(".log"):
        expected = [r for r in partition.expected_records() if r["file"] == path.name and "offset" in r]
        _, lines = shown(plan(path))
        assert [line.split()[0] for line in lines[2:] if line and expected] == [
            str(r["offset"]) for r in expected
        ]


def test_a_table_of_batches_marks_the_damaged_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = shown(
        plan(corpora.Corpus("corrupt-k39").path / "logs" / "c-b.flip-first-0", rows=Rows.BATCHES)
    )
    marked = [line for line in lines if "checksum fails" in line]
    assert code == 1
    assert len(marked) == 1
    assert marked[0].split()[0] in capsys.readouterr().err


def test_redacted_keys_and_values_show_lengths_only() -> None:
    path = corpora.Corpus("k39-groups").path / "logs" / "g-a-0"
    _, lines = shown(plan(path, bytes_mode=BytesMode.NONE))
    assert "(7 bytes)  (24 bytes)" in lines[2]
    assert not any("key-" in line for line in lines)


def test_the_limit_counts_over_all_files() -> None:
    path = corpora.Corpus("k39-groups").path / "logs"
    _, lines = shown(plan(path / "g-a-0", path / "g-a-1", selection=Selection(limit=41)))
    assert len([line for line in lines if line and line.split()[0].isdigit()]) == 41


def test_every_other_kind_of_file_has_a_table() -> None:
    code, lines = shown(plan(corpora.Corpus("k39-txn").path / "logs", all_kinds=True))
    text = "\n".join(lines)
    assert code == 0
    for expected in (
        "t-txn                        0     526",  # recovery-point-offset-checkpoint
        "cluster.id  scNyWny4Rs6CeMxNTRsXBg",
        "topic id  HxEftVCTR1iKjvwIAj5sdg",
        "1795252666103  2026-11-21 09:17:46.103       1",  # a time index
        "       1             0            1                   2",  # a transaction index
    ):
        assert expected in text


def test_a_file_that_cannot_be_parsed_is_reported_and_the_others_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n5\n1 1\n")
    shutil.copy(corpora.Corpus("k39-groups").path / "logs" / "meta.properties", tmp_path)
    code, lines = shown(plan(tmp_path, all_kinds=True))
    assert code == 1
    assert str(tmp_path / "leader-epoch-checkpoint") in capsys.readouterr().err
    assert any("cluster.id" in line for line in lines)


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["C", "Z"]), max_size=9), min_size=1, max_size=3 * CHUNK_ROWS
    )
)
def test_chunks_lose_no_row_and_keep_their_order(words: list[str]) -> None:
    rows: list[Row] = [[Cell(str(number)), Cell(word)] for number, word in enumerate(words)]
    out = io.BytesIO()
    with TableWriter(out) as writer:
        assert writer.table([Column("n", right=True), Column("word")], rows) == len(words)
    lines = out.getvalue().decode().split("\n")[1:-1]
    assert [line.split() for line in lines] == [
        [str(n), word][: 1 + bool(word)] for n, word in enumerate(words)
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, "null"),
        (b"", '""'),
        (b"plain", "plain"),
        (b"two\nlines", "two\\nlines"),
        (b"\xff\x00", "0xff00"),
        (b"\x00\x01\x02\x03", "0x00010203"),
        ("\u65e5\u672c".encode() * 40, "\u65e5\u672c" * 9 + "\u65e5\u2026"),
        (b"x" * 500, "x" * 19 + "\u2026"),
    ],
)
def test_a_preview_is_one_short_line(data: bytes | None, expected: str) -> None:
    assert preview(data, len(data or b""), BytesMode.AUTO, 20).text == expected


@given(st.binary(max_size=300), st.sampled_from(BytesMode), st.integers(8, 60))
def test_a_preview_is_never_longer_than_its_width_nor_more_than_a_line(
    data: bytes, mode: BytesMode, room: int
) -> None:
    text = preview(data, len(data), mode, room).text
    assert len(text) <= max(room, len(f"({len(data)} bytes)") if mode is BytesMode.NONE else room)
    assert text.isprintable()


def test_sizes_and_times_are_readable() -> None:
    assert [human_bytes(n) for n in (0, 1023, 1024, 1500, 1 << 20, 123 << 20, 1 << 30)] == [
        *("0 B", "1023 B", "1.00 KiB", "1.46 KiB", "1.00 MiB", "123 MiB", "1.00 GiB"),
    ]
    assert [human_span(ms) for ms in (5, 12_300, 754_000, 12_000_000, 3_600_000 * 50)] == [
        *("5 ms", "12.3 s", "12 m 34 s", "3 h 20 m", "2 d 2 h"),
    ]
    assert human_time(-1) == "-"
    assert human_time(2**62) == str(2**62)


@pytest.mark.parametrize("partition", SOUND, ids=str)
def test_a_summary_counts_what_kafkas_reader_finds(partition: corpora.PartitionDirectory) -> None:
    out = io.BytesIO()
    summary.run_jsonl(plan(partition.path), out)
    numbers = json.loads(out.getvalue())
    live = {path.name for path in partition.files(".log")}
    batches = [line for line in partition.expected_batches() if line["file"] in live and "position" in line]
    records = [line for line in partition.expected_records() if line["file"] in live and "offset" in line]
    assert (numbers["batches"], numbers["records"]) == (len(batches), len(records))
    assert numbers["size"] == sum(batch["size"] for batch in batches)
    assert numbers["invalidBatches"] == sum(not batch["valid"] for batch in batches)
    assert numbers["magics"] == {str(k): v for k, v in Counter(batch["magic"] for batch in batches).items()}
    codecs = Counter(batch["codec"] for batch in batches)
    assert {name: share["batches"] for name, share in numbers["codecs"].items()} == codecs
    assert numbers["nullKeys"] == sum(record.get("key", "") is None for record in records)
    assert numbers["nullValues"] == sum(record.get("value", "") is None for record in records)
    assert numbers["headers"] == sum(len(record["headers"]) for record in records)
    assert numbers["controlRecords"] == Counter(r["controlType"] for r in records if r["isControl"])
    assert sum(numbers["histogram"]["records"]) == sum(
        1 for record in records if max_timestamp(batches, record) >= 0
    )
    if records:
        offsets = [record["offset"] for record in records]
        sizes = sorted(record["recordSize"] for record in records)
        assert numbers["recordSizes"] == {
            "min": sizes[0],
            "median": sizes[(len(sizes) - 1) // 2],
            "max": sizes[-1],
        }
        assert numbers["lastOffset"] >= offsets[-1]
        span = numbers["lastOffset"] - numbers["firstOffset"] + 1
        if numbers["magics"].keys() == {"2"}:
            assert numbers["missingOffsets"] == span - len(set(offsets))


def max_timestamp(batches: list[corpora.JsonObject], record: corpora.JsonObject) -> int:
    """The largest timestamp of a record's batch, under which the histogram counts the record."""
    return next(
        int(batch["maxTimestamp"])
        for batch in batches
        if (batch["file"], batch["position"]) == (record["file"], record["batchPosition"])
    )


def test_a_summary_for_people_has_the_same_numbers() -> None:
    out = io.BytesIO()
    assert summary.run(plan(corpora.Corpus("k39-txn").path / "logs" / "t-txn-0"), out) == 0
    text = out.getvalue().decode()
    for expected in (
        "records        526 in 68 batches, 6 segments",
        "offsets        0 to 525, no gaps",
        "gzip: 20 batches, 18.5 KiB, compressed 0.97 to 1",
        "transactions   11 committed, 8 aborted, 1 open",
        "producer 3 since offset 516",
    ):
        assert expected in text


def test_a_summary_of_several_partitions_has_one_row_per_partition() -> None:
    out = io.BytesIO()
    logs = corpora.Corpus("k39-codecs").path / "logs"
    assert summary.run(plan(logs), out) == 0
    lines = out.getvalue().decode().splitlines()
    assert [line.split()[0] for line in lines[1:]] == [str(path) for path in sorted(logs.glob("t-*"))]


def test_a_sampled_summary_has_the_same_header_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    path = corpora.Corpus("k39-txn").path / "logs" / "t-txn-0"
    exact, sampled = io.BytesIO(), io.BytesIO()
    summary.run_jsonl(plan(path), exact)
    monkeypatch.setattr(summary, "DECODE_ALL_BELOW_BYTES", 0)
    summary.run_jsonl(plan(path), sampled)
    whole, part = json.loads(exact.getvalue()), json.loads(sampled.getvalue())
    assert part.pop("sampled")
    assert not whole.pop("sampled")
    assert part["decodedRecords"] < whole["decodedRecords"]
    for name in ("codecs", "recordSizes", "decodedRecords", "nullKeys", "nullValues", "headers"):
        del whole[name], part[name]
    assert part == whole


@given(st.lists(st.integers(0, 50), min_size=1))
def test_a_distribution_has_minimum_maximum_and_lower_median(values: list[int]) -> None:
    found = Distribution()
    found.add(values)
    ordered = sorted(values)
    assert (found.smallest, found.median, found.largest) == (
        ordered[0],
        ordered[(len(values) - 1) // 2],
        ordered[-1],
    )


@given(
    st.lists(st.tuples(st.integers(0, 2**48), st.integers(1, 9)), min_size=1, max_size=50), st.integers(1, 60)
)
def test_a_histogram_counts_every_record(points: list[tuple[int, int]], count: int) -> None:
    histogram = TimeHistogram()
    histogram.add([time for time, _ in points], [weight for _, weight in points])
    start, width, bars = histogram.bars(count)
    assert sum(bars) == sum(weight for _, weight in points)
    assert start <= min(time for time, _ in points)
    assert start + width * len(bars) > max(time for time, _ in points)
    assert len(bars) <= count


@pytest.mark.parametrize("partition", SOUND[::6], ids=str)
def test_parquet_holds_the_records_of_the_readers(
    partition: corpora.PartitionDirectory, tmp_path: Path
) -> None:
    target = tmp_path / "all.parquet"
    code = parquet.run(plan(partition.path, output=str(target)), io.BytesIO())
    rows = pq.read_table(target, columns=["offset", "key", "value"]).to_pylist()
    problems: list[library.KlogError] = []
    directory = library.PartitionDirectory(partition.path)
    found = directory.records(on_problem=problems.append, control_records=True)
    assert rows == [{"offset": r.offset, "key": r.key, "value": r.value} for r in found]
    assert code == bool(problems)
    assert os.listdir(tmp_path) == ["all.parquet"]


def test_parquet_into_a_directory_is_one_file_per_segment(tmp_path: Path) -> None:
    source = corpora.Corpus("k39-codecs").path / "logs"
    assert (
        parquet.run(plan(source / "t-gzip-0", source / "t-none-0", output=f"{tmp_path}/out/"), io.BytesIO())
        == 0
    )
    written = sorted(path.relative_to(tmp_path / "out").as_posix() for path in tmp_path.rglob("*.parquet"))
    assert written == sorted(
        f"{name}/{path.stem}.parquet"
        for name in ("t-gzip-0", "t-none-0")
        for path in (source / name).glob("*.log")
    )
    rows = sum(pq.read_metadata(tmp_path / "out" / name).num_rows for name in written)
    assert rows == 420 + 280


def test_parquet_of_batches_has_one_row_per_batch(tmp_path: Path) -> None:
    partition = corpora.Corpus("k39-txn").log_dir().partition("t-txn-0")
    target = tmp_path / "batches.parquet"
    parquet.run(plan(partition.path, output=str(target), rows=Rows.BATCHES, verify=True), io.BytesIO())
    live = {path.name for path in partition.files(".log")}
    expected = [line for line in partition.expected_batches() if line["file"] in live and "position" in line]
    names = ["position", "size", "baseOffset", "lastOffset", "magic", "count", "codec", "checksum", "valid"]
    names += [
        "producerId",
        "producerEpoch",
        "baseSequence",
        "lastSequence",
        "partitionLeaderEpoch",
        "timestampType",
    ]
    names += ["isTransactional", "isControl"]
    rows = pq.read_table(target, columns=names).to_pylist()
    assert sorted(rows, key=str) == sorted(
        ({name: line[name] for name in names} for line in expected), key=str
    )


def test_redacted_parquet_has_no_keys_values_nor_headers(tmp_path: Path) -> None:
    target = tmp_path / "bare.parquet"
    source = corpora.Corpus("k39-groups").path / "logs" / "g-a-0"
    parquet.run(plan(source, output=str(target), bytes_mode=BytesMode.NONE), io.BytesIO())
    assert not {"key", "value", "headers"} & set(pq.read_schema(target).names)


def test_parquet_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    damaged = corpora.Corpus("corrupt-k39").path / "logs" / "c-b.flip-first-0"
    wanted = plan(damaged, output=str(tmp_path / "x.parquet"), verify=True, strict=True)
    with pytest.raises(library.CorruptRecordError):
        parquet.run(wanted, io.BytesIO())
    assert os.listdir(tmp_path) == []
