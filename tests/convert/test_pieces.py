"""Large tasks are divided into pieces, and become what they would have become alone."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.convert.finishing import PartitionOutcome
from klog.convert.options import ConvertOptions
from klog.convert.run_convert import pool, run_convert
from klog.convert.tasks import ConvertTask, Failure, TaskResult
from klog.formats.errors import KlogError
from klog.formats.names import FileKind, segment_file
from klog.replicas.stages import OnBytes, Pool, Stage
from klog.storage.repair.segment_scan import IndexSettings
from tests import strategies
from tests.convert.logs import ALL, contents, converted, planned, records_of, with_codec
from tests.convert.test_properties import LOGS, OPTIONS, directory_of, rolled
from tests.storage.cleaner.logs import index, random_log

BATCHES = 200
ALL_BATCHES = IndexSettings(interval_bytes=0)


@dataclass(slots=True)
class Shuffled:
    """Runs tasks in this process, in the order of a seed, and notes them."""

    seed: int
    cores: int = 1000
    tasks: list[ConvertTask] = field(default_factory=list)

    def __call__(
        self, stage: Stage[ConvertTask, TaskResult | Failure], on_bytes: OnBytes
    ) -> Iterator[TaskResult | Failure]:
        self.tasks = random.Random(self.seed).sample(stage.tasks, len(stage.tasks))
        for task in self.tasks:
            yield stage.work(task, on_bytes)


def in_pieces(
    directory: Path, options: ConvertOptions = ALL, *, runner: Shuffled | Pool, least_bytes: int = 1
) -> PartitionOutcome:
    """Convert a partition directory in pieces of as few bytes. Raises the error of its tasks."""
    done: list[int] = []
    plan = planned(directory, options)
    ((_, outcome),) = run_convert(
        [plan], runner, verifies=True, on_bytes=done.append, least_piece_bytes=least_bytes
    )
    if isinstance(outcome, KlogError):
        raise outcome
    assert sum(done) == 2 * plan.convertible_bytes
    return outcome


def copy(directory: Path, name: str) -> Path:
    return Path(shutil.copytree(directory, directory.parent / name / directory.name))


@given(LOGS, OPTIONS, st.sets(st.integers(1, 13), max_size=2), st.integers(0, 5), st.integers(1, 300))
def test_pieces_become_the_files_of_the_whole(
    drawn: list[Any], options: ConvertOptions, rolls: set[int], seed: int, least_bytes: int
) -> None:
    data = strategies.log_of(drawn, 4090, compressed=True)
    with directory_of(rolled(data, rolls)) as directory:
        index(directory, ALL_BATCHES)
        other = copy(directory, "pieces")
        whole = converted(directory, options)
        outcome = in_pieces(other, options, runner=Shuffled(seed), least_bytes=least_bytes)
        assert contents(other) == contents(directory)
        assert outcome.segments == whole.segments
        assert outcome.records_compared == whole.records_compared
        assert (outcome.batches_read, outcome.batches_written) == (whole.batches_read, whole.batches_written)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("batch_bytes", [0, 1 << 17])
def test_random_logs_in_pieces_become_the_files_of_the_whole(
    seed: int, batch_bytes: int, tmp_path: Path
) -> None:
    directory = tmp_path / "events-0"
    random_log(directory, seed)
    index(directory, ALL_BATCHES)
    other = copy(directory, "pieces")
    options = with_codec(ALL.codec, batch_bytes=batch_bytes, segment_bytes=2000)
    runner = Shuffled(seed)
    converted(directory, options)
    in_pieces(other, options, runner=runner)
    assert any(task.whole is not None for task in runner.tasks) or len(runner.tasks) < 3
    assert contents(other) == contents(directory)


@pytest.fixture
def single(tmp_path: Path) -> Path:
    """A log of one segment that can be divided anywhere."""
    directory = tmp_path / "events-0"
    log = strategies.log_of([DRAWN | {"leader_epoch": number} for number in range(BATCHES)])
    directory.mkdir()
    (directory / segment_file(FileKind.LOG, 0)).write_bytes(log)
    index(directory, ALL_BATCHES)
    return directory


DRAWN = {
    "gap": 0,
    "values": [b"some value", None, b"other"],
    "headers": [],
    "times": 5,
    "codec": 0,
    "producer": (7, 0),
    "lost": 0,
    "kind": "data",
}


def test_processes_share_one_segment(single: Path) -> None:
    other = copy(single, "pieces")
    converted(single)
    assert in_pieces(other, runner=pool(3, small_bytes=0)).batches_written == BATCHES
    assert contents(other) == contents(single)


def test_pieces_are_as_large_as_the_cores_need(single: Path) -> None:
    for cores, most in ((1, 1), (2, 16), (4, 32)):
        runner = Shuffled(0, cores)
        in_pieces(copy(single, str(cores)), runner=runner)
        assert most * 0.6 < len(runner.tasks) <= most


def test_many_small_segments_that_become_one_are_divided(tmp_path: Path) -> None:
    directory = tmp_path / "events-0"
    data = strategies.log_of([DRAWN | {"leader_epoch": number // 3} for number in range(BATCHES)])
    directory.mkdir()
    for base, part in rolled(data, set(range(4, BATCHES, 4))):
        (directory / segment_file(FileKind.LOG, base)).write_bytes(part)
    index(directory, ALL_BATCHES)
    other = copy(directory, "pieces")
    options = with_codec(ALL.codec, segment_bytes=1 << 20)
    runner = Shuffled(5, cores=4)
    assert len(converted(directory, options).segments) == 1
    in_pieces(other, options, runner=runner)
    assert 10 < len(runner.tasks) <= 32
    assert contents(other) == contents(directory)


@pytest.mark.parametrize("wrong", ["missing", "positions", "offsets", "cut"])
def test_a_wrong_offset_index_divides_nothing_wrongly(single: Path, wrong: str) -> None:
    path = single / segment_file(FileKind.OFFSET_INDEX, 0)
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), 8):
        if wrong == "positions":
            data[at + 7] ^= 1
        if wrong == "offsets":
            data[at + 3] ^= 0xFF
    path.write_bytes(data[:-3] if wrong == "cut" else data)
    if wrong == "missing":
        path.unlink()
    other = copy(single, "pieces")
    runner = Shuffled(1)
    converted(single)
    in_pieces(other, runner=runner)
    assert len(runner.tasks) == 1 if wrong in ("missing", "positions") else len(runner.tasks) > BATCHES // 3
    assert contents(other) == contents(single)


@pytest.mark.parametrize("batch", [0, 70, BATCHES - 1])
def test_a_damaged_piece_leaves_the_partition_as_it_was(single: Path, batch: int) -> None:
    path = single / segment_file(FileKind.LOG, 0)
    data = bytearray(path.read_bytes())
    position = len(data) // BATCHES * batch
    data[position + 70] ^= 1
    path.write_bytes(data)
    before = contents(single)
    with pytest.raises(KlogError, match=f"at byte {position}: batch fails its checksum"):
        in_pieces_of_any_size(single)
    assert contents(single) == before


def in_pieces_of_any_size(directory: Path) -> PartitionOutcome:
    ((_, outcome),) = run_convert([planned(directory, ALL)], Shuffled(2), least_piece_bytes=1)
    assert isinstance(outcome, PartitionOutcome | KlogError)
    if isinstance(outcome, KlogError):
        raise outcome
    return outcome


def test_offsets_that_go_back_between_pieces_are_found(single: Path) -> None:
    path = single / segment_file(FileKind.LOG, 0)
    data = path.read_bytes()
    half = len(data) // 2
    path.write_bytes(data[half:] + data[:half])
    before = contents(single)
    with pytest.raises(KlogError, match=f"at byte {half}: batch of offset"):
        in_pieces_of_any_size(single)
    assert contents(single) == before


def test_a_conversion_that_was_killed_between_pieces_begins_its_task_anew(single: Path) -> None:
    other = copy(single, "whole")
    converted(other)

    class Killed(Exception):  # noqa: N818 (not an error)
        pass

    class Dying(Shuffled):
        def __call__(
            self, stage: Stage[ConvertTask, TaskResult | Failure], on_bytes: OnBytes
        ) -> Iterator[TaskResult | Failure]:
            for task in stage.tasks[:25]:
                yield stage.work(task, on_bytes)
            raise Killed

    with pytest.raises(Killed):
        in_pieces(single, runner=Dying(0))
    assert records_of(single) == records_of(other)
    in_pieces(single, runner=Shuffled(3))
    assert contents(single) == contents(other)
