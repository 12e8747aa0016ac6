"""What the library gives of a log: the records of a consumer at each isolation level, and typed openings."""

from __future__ import annotations

import gzip
import shutil
import warnings
from pathlib import Path

import pyarrow as pa
import pytest

import klog
from tests import corpora

LEVELS = ("read_uncommitted", "read_committed")
CONSUMED = [
    (partition, level)
    for partition in corpora.partitions()
    if not partition.corpus.is_corrupt
    for level in LEVELS
    if partition.expected_consumer(level) is not None
]
TXN = corpora.Corpus("k39-txn").path / "logs" / "t-txn-0"


def committed_offsets(path: Path, start: int = 0) -> list[int]:
    records = klog.open_partition(path).records(
        isolation_level="read_committed", start_offset=start, on_problem=ignore
    )
    return [record.offset for record in records]


def ignore(problem: klog.KlogError) -> None:
    """Corpora with an unclean tail: these tests do not look at the problems."""


@pytest.mark.parametrize(("partition", "level"), CONSUMED, ids=str)
def test_records_are_those_that_a_real_consumer_got(
    partition: corpora.PartitionDirectory, level: klog.IsolationLevel
) -> None:
    lines = partition.expected_consumer(level)
    assert lines is not None
    seen = [line["offset"] for line in lines if "offset" in line]
    (ends,) = (line for line in lines if "endOffset" in line)
    directory = klog.open_partition(partition.path)
    bounds = {"start_offset": ends["beginningOffset"], "end_offset": ends["position"]}
    records = directory.records(**bounds, isolation_level=level, on_problem=ignore)
    assert [record.offset for record in records] == seen
    table = directory.to_arrow(["offset"], **bounds, isolation_level=level, on_problem=ignore)
    assert table.column("offset").to_pylist() == seen


@pytest.mark.parametrize("start", [0, 100, 250, 400, 515, 516, 520])
def test_committed_records_from_an_offset_are_the_rest_of_all_committed_records(start: int) -> None:
    directory = klog.open_partition(TXN)
    everything = committed_offsets(TXN)
    assert committed_offsets(TXN, start) == [offset for offset in everything if offset >= start]
    by_segment = [
        record.offset
        for segment in directory.segments
        for record in segment.records(isolation_level="read_committed", start_offset=start)
    ]
    assert by_segment == [offset for offset in everything if offset >= start]


def test_committed_records_need_no_snapshots(tmp_path: Path) -> None:
    copy = tmp_path / "t-txn-0"
    shutil.copytree(TXN, copy)
    expected = committed_offsets(TXN, 300)
    for number, snapshot in enumerate(sorted(copy.glob("*.snapshot"))):
        if number % 2:
            snapshot.unlink()
        else:
            snapshot.write_bytes(b"broken")
    assert committed_offsets(copy, 300) == expected


def test_a_damaged_batch_opens_no_transaction(tmp_path: Path) -> None:
    copy = tmp_path / "t-txn-0"
    shutil.copytree(TXN, copy)
    before = committed_offsets(copy)
    batch = next(
        batch
        for batch in klog.open_partition(copy).batches(start_offset=100)
        if batch.is_transactional and not batch.is_control and batch.base_offset in before
    )
    with Path(batch.file).open("r+b") as file:
        file.seek(batch.position_bytes + 43)  # another producer, which ends no transaction
        file.write((batch.producer_id + 1000).to_bytes(8, "big"))
    assert not batch.valid
    assert committed_offsets(copy) == before


def test_control_records_come_only_if_they_are_asked_for() -> None:
    directory = klog.open_partition(TXN)
    assert not any(record.is_control for record in directory.records())
    asked = [record for record in directory.records(control_records=True) if record.is_control]
    assert {record.control_type for record in asked} == {"COMMIT", "ABORT"}
    committed = directory.records(control_records=True, isolation_level="read_committed")
    assert any(record.is_control for record in committed)
    assert directory.to_arrow().num_rows + len(asked) == directory.to_arrow(control_records=True).num_rows


def test_an_unknown_isolation_level_is_wrong_usage() -> None:
    with pytest.raises(klog.UsageError, match="read_uncommitted, read_committed"):
        klog.open_partition(TXN).records(isolation_level="read_comitted")  # type: ignore[arg-type]


def test_an_empty_partition_is_an_empty_table(tmp_path: Path) -> None:
    empty = tmp_path / "orders-0"
    empty.mkdir()
    columns = ["offset", "key", "headers"]
    without_files = klog.open_partition(empty).to_arrow(columns)
    (empty / f"{0:020}.log").touch()
    directory = klog.open_partition(empty)
    for table in (without_files, directory.to_arrow(columns), directory.segments[0].to_arrow(columns)):
        assert isinstance(table, pa.Table)
        assert (table.num_rows, table.column_names) == (0, columns)
        assert table.schema == klog.open_partition(TXN).to_arrow(columns).schema
    assert list(directory.records()) == list(directory.batches()) == list(directory.arrow_batches()) == []
    assert (directory.log_start_offset, directory.log_end_offset) == (0, 0)
    assert directory.first_offset_at(0) is None


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (TXN, klog.PartitionDirectory),
        (TXN.parent, klog.LogDirectory),
        (next(TXN.glob("*.log")), klog.Segment),
    ],
)
def test_an_opening_gives_its_type_or_names_the_one_that_does(path: Path, kind: type) -> None:
    openings = {
        klog.Segment: klog.open_segment,
        klog.PartitionDirectory: klog.open_partition,
        klog.LogDirectory: klog.open_log_directory,
    }
    assert type(klog.open(path)) is type(klog.open(path, kind)) is kind
    right = openings.pop(kind)
    assert type(right(path)) is kind
    for expected, wrong in openings.items():
        with pytest.raises(klog.StorageError, match=f"klog.{right.__name__} opens it"):
            wrong(path)
        with pytest.raises(klog.StorageError):
            klog.open(path, expected)


def test_a_path_that_does_not_exist_says_so_however_it_is_opened(tmp_path: Path) -> None:
    for opening in (klog.open, klog.open_segment, klog.open_partition, klog.open_log_directory):
        with pytest.raises(klog.StorageError, match="No such file"):
            opening(tmp_path / "nowhere")


def test_a_segment_that_cannot_be_read_is_reported_once(tmp_path: Path) -> None:
    copy = tmp_path / "t-txn-0"
    shutil.copytree(TXN, copy)
    last = sorted(copy.glob("*.log"))[-1]
    packed = last.with_name(f"{last.name}.gz")
    packed.write_bytes(gzip.compress(last.read_bytes())[:100])
    last.unlink()
    problems: list[klog.KlogError] = []
    directory = klog.open_partition(copy)
    list(directory.records(isolation_level="read_committed", on_problem=problems.append))
    assert [problem.file for problem in problems] == [str(packed)]
    # What a reader does not read itself is told, too: which transactions were aborted is not known.
    before = directory.segments[0].records(isolation_level="read_committed", on_problem=problems.append)
    list(before)
    list(directory.records(isolation_level="read_committed", end_offset=50, on_problem=problems.append))
    assert [problem.file for problem in problems] == [str(packed)] * 3


@pytest.fixture
def damaged() -> klog.PartitionDirectory:
    return klog.open_partition(corpora.Corpus("corrupt-k39").path / "logs" / "c-b.flip-last-0")


def test_a_warning_points_at_the_line_that_reads(damaged: klog.PartitionDirectory) -> None:
    segment = damaged.segments[-1]
    readings = [
        lambda: list(damaged.records()),
        lambda: list(segment.records()),
        lambda: damaged.to_arrow(["key"]),
        lambda: segment.to_arrow(["key"]),
        lambda: list(damaged.arrow_batches()),
        lambda: list(damaged.records(isolation_level="read_committed")),
        lambda: pa.Table.from_batches(segment.arrow_batches()),
    ]
    for read in readings:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            read()
        assert caught
        for warning in caught:
            assert issubclass(warning.category, klog.DamagedDataWarning)
            assert (warning.filename, warning.lineno) == (__file__, read.__code__.co_firstlineno)
