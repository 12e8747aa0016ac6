"""Small pieces are joined, and every moment comes back as it would without that."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.backup.joining import NEVER, JoinRules
from klog.backup.model import Piece
from klog.backup.prune import GRACE_MS, Rules, plan_prune, prune
from klog.backup.restoring.request import RestoreRequest, plan_of, select
from klog.backup.restoring.run import TargetOptions, run_restore
from klog.backup.verify import VerifyOptions, state_problem, verify
from klog.formats.names import TopicPartition
from tests.backup.repositories import Backups, log_files
from tests.backup.simulated_logs import PARTITIONS, SimulatedCluster
from tests.export.logs import batch, write_segment

ORDERS = TopicPartition("orders", 0)
FEW = JoinRules(fewest=3, most=5, limits_bytes=(400, 1500), largest_bytes=4000)
ROLLED_AFTER = 60
RUNS = 25


def piece(start: int, size: int, segment: int = 0) -> Piece:
    return Piece(segment, start, size, start, start + size, -1, "", f"{start}.log", size)


def pieces_of(sizes: list[int]) -> list[Piece]:
    return [piece(sum(sizes[:at]), size) for at, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], None),
        ([10, 10], None),
        ([10, 10, 10], (0, 3)),
        ([500, 10, 10, 10], (1, 4)),
        ([10, 500, 10, 10], (0, 4)),  # by the second limit
        ([10, 2000, 10, 10], None),
        ([1000, 1000, 10, 1000], (0, 4)),
        ([1500, 2000, 1500, 1600], None),  # and these are not
        ([10] * 9, (0, 5)),
        ([1400, 1400, 1400], (0, 2)),  # three would be more than the largest
    ],
)
def test_which_pieces_are_joined(sizes: list[int], expected: tuple[int, int] | None) -> None:
    assert FEW.due(pieces_of(sizes)) == expected


def test_pieces_of_two_segments_and_those_beside_damage_are_not_joined() -> None:
    one, two, three, four = pieces_of([10, 10, 10, 10])
    assert FEW.due([one, two, replace(three, segment_base_offset=20)]) is None
    assert FEW.due([one, three, four]) is None


@given(appended=st.lists(st.integers(1, 2000), min_size=1, max_size=400))
def test_few_pieces_stay_and_little_is_written_again(appended: list[int]) -> None:
    rules = JoinRules(fewest=4, most=16, limits_bytes=(16, 64, 256, 1024), largest_bytes=4096)
    kept: list[Piece] = []
    written = 0
    for size in appended:
        kept.append(piece(sum(each.size_bytes for each in kept), size))
        while (due := rules.due(kept)) is not None:
            first, end = due
            joined = sum(each.size_bytes for each in kept[first:end])
            written += joined
            kept[first:end] = [piece(kept[first].start_bytes, joined)]
    small = [each for each in kept if each.size_bytes < 1024]
    assert len(small) <= 3 * 4 + 3 * (len(kept) - len(small))
    assert written <= 5 * sum(appended)


class Written:
    """A simulated cluster as log files at a time."""

    def __init__(self, cluster: SimulatedCluster, logs: Path) -> None:
        self._cluster = cluster
        self._logs = logs

    def at(self, now_ms: int) -> None:
        for partition in PARTITIONS:
            log = self._cluster.logs[partition]
            there = [data for at, data in log.batches if at <= now_ms]
            for first in range(0, len(there), ROLLED_AFTER):
                path = write_segment(self._logs / str(partition), there[first : first + ROLLED_AFTER])
                os.utime(path, (0, 0))  # before the time of the simulation


def restored(backups: Backups, request: RestoreRequest, path: Path) -> dict[str, bytes]:
    """All that a restore writes, but what names the time."""
    repository = backups.repository
    selected = select(repository, request)
    plan = plan_of(repository, request, selected)
    run_restore(repository, plan, selected.manifest, TargetOptions(str(path), "cluster", brokers=(1,)))
    return {
        str(each.relative_to(path)): each.read_bytes()
        for each in path.rglob("*")
        if each.is_file() and each.suffix in (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
    }


def test_every_moment_comes_back_as_without_joining(tmp_path: Path, logs: Path) -> None:
    seed = int(os.environ.get("KLOG_TEST_SEED", "11"))
    cluster = SimulatedCluster(seed, steps=400)
    end_ms = cluster.now_ms
    chance = random.Random(seed)
    written = Written(cluster, logs)
    joined, plain = (Backups(tmp_path / name, now_ms=0) for name in ("joined", "plain"))
    runs = sorted(chance.sample(range(1_000_100, end_ms), RUNS))
    for now_ms in runs:
        written.at(now_ms)
        for backups, rules in ((joined, FEW), (plain, NEVER)):
            backups.now_ms = now_ms - 1000
            assert backups.run(logs, joining=rules).is_clean

    counts = {name: sum(len(state.pieces) for state in each.states().values())
              for name, each in (("joined", joined), ("plain", plain))}  # fmt: skip
    assert 2 * counts["joined"] < counts["plain"]
    moments = [RestoreRequest(at_ms=chance.randrange(runs[0], runs[-1])) for _ in range(4)]
    moments += [RestoreRequest(backup=each) for each in chance.sample(joined.repository.ids(), 2)]
    before = [restored(joined, each, tmp_path / f"joined-{n}") for n, each in enumerate(moments)]
    assert before == [restored(plain, each, tmp_path / f"plain-{n}") for n, each in enumerate(moments)]

    kept_from_ms = chance.choice(runs[5:-5])
    late_ms = 2 * GRACE_MS + max(path.stat().st_mtime_ns for path in logs.rglob("*")) // 1_000_000
    repository = joined.repository
    plan = plan_prune(repository, Rules(before_ms=kept_from_ms), late_ms)
    assert any(name.startswith("data/") for name in plan.objects)
    prune(repository, plan, lambda _name: None)

    assert not verify(joined.repository, joined.repository.ids(), VerifyOptions()).findings
    for number, (request, files) in enumerate(zip(moments, before, strict=True)):
        if request.at_ms is not None and request.at_ms >= runs[runs.index(kept_from_ms) + 1]:
            assert restored(joined, request, tmp_path / f"again-{number}") == files


def test_a_log_is_the_same_bytes_in_fewer_pieces(backups: Backups, logs: Path) -> None:
    for number in range(40):
        write_segment(logs / "orders-0", [batch(5 * each, 5) for each in range(number + 1)], 0)
        backups.run(logs, joining=FEW)

    state = backups.states()[ORDERS]

    assert len(state.pieces) < 12
    assert state_problem(state) is None
    assert backups.segments("orders") == log_files(logs / "orders-0")


def test_a_damaged_piece_is_not_joined_and_named(backups: Backups, logs: Path) -> None:
    write_segment(logs / "orders-0", [batch(0, 5)], 0)
    backups.run(logs, joining=FEW)
    damaged = backups.states()[ORDERS].pieces[0].name
    (Path(backups.place) / damaged).write_bytes(b"x")
    for number in (2, 3):
        write_segment(logs / "orders-0", [batch(5 * each, 5) for each in range(number)], 0)
        assert backups.run(logs, joining=FEW).is_clean
    write_segment(logs / "orders-0", [batch(5 * each, 5) for each in range(4)], 0)

    result = backups.run(logs, joining=FEW)

    [problem] = result.manifest.problems
    assert damaged in problem.what
    assert len(backups.states()[ORDERS].pieces) == 4


def test_many_partitions_are_joined_in_several_runs(backups: Backups, logs: Path) -> None:
    for count in range(1, 5):
        for number in range(20):
            write_segment(logs / f"orders-{number}", [batch(5 * each, 5) for each in range(count)], 0)
        backups.run(logs, joining=FEW)
    pieces = sorted(len(state.pieces) for state in backups.states().values())
    assert pieces == [2] * 16 + [4] * 4
