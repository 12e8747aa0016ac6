"""`klog.replicas.replicas`: which replica counts, what others add, and where they disagree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.export.options import ReadOptions
from klog.export.planner import plan
from klog.formats.checkpoints import EpochEntry
from klog.formats.constants import INT64_MAX
from klog.formats.names import FileKind
from klog.replicas.divergence import common_end
from klog.replicas.splits import Plan
from tests.corpora import FIXTURES
from tests.export.logs import (
    Log,
    batch,
    replica,
    write_checkpoint,
    write_epochs,
    write_segment,
    write_topic_id,
)

EPOCHS = FIXTURES / "k39-epochs"


def planned(*paths: Path, **options: object) -> Plan:
    return plan(ReadOptions(tuple(map(str, paths)), **options))  # type: ignore[arg-type]


def ranges(made: Plan) -> list[tuple[str, int, int]]:
    """(name of the broker's directory, first, end) of each split in the order of the log."""
    splits = sorted(made.splits, key=lambda split: split.number)
    return [(Path(split.file).parts[-3], split.first_offset, split.end_offset) for split in splits]


def differences(made: Plan) -> list[tuple[str, int, int]]:
    return [(Path(one.other).parts[-2], one.first_offset, one.end_offset) for one in made.divergences]


def batches(first: int, end: int, epoch: int = 0, step: int = 5, size: int = 10) -> list[bytes]:
    return [batch(n, min(step, end - n), leader_epoch=epoch, size=size) for n in range(first, end, step)]


def epochs(*entries: tuple[int, int]) -> list[EpochEntry]:
    return [EpochEntry(*entry) for entry in entries]


def test_after_an_unclean_election_the_new_leaders_log_counts_and_the_old_tail_is_listed() -> None:
    made = planned(EPOCHS / "logs_1", EPOCHS / "logs_div0")
    ep = next(
        partition for partition in made.partitions if (partition.topic, partition.partition) == ("ep", 0)
    )
    assert [Path(directory).parts[-2] for directory in ep.directories] == ["logs_1", "logs_div0"]
    assert (ep.start_offset, ep.end_offset) == (0, 147)
    assert differences(made) == [("logs_div0", 95, 113)]
    assert made.divergences[0].reason == "leader epoch 8 is above 4"
    assert not made.lost


def test_replicas_of_real_brokers_that_agree_are_one_log() -> None:
    made = planned(EPOCHS / "logs_0", EPOCHS / "logs_1", EPOCHS / "logs_2")
    assert ranges(made) == [("logs_2", 0, 76), ("logs_2", 76, 143), ("logs_2", 143, 147)]
    assert not made.divergences
    assert not made.problems


def test_a_replica_alone_is_read_to_its_end_past_the_high_watermark() -> None:
    made = planned(EPOCHS / "logs_div0")
    assert (made.partitions[0].high_watermark, made.partitions[0].end_offset) == (95, 113)


def test_the_order_of_paths_makes_no_difference() -> None:
    paths = [EPOCHS / name for name in ("logs_0", "logs_1", "logs_2", "logs_div0")]
    assert planned(*paths) == planned(*reversed(paths))


def test_in_one_epoch_the_longest_log_counts(tmp_path: Path) -> None:
    replica(tmp_path / "a" / "t-0", batches(0, 40), (0, 0))
    replica(tmp_path / "b" / "t-0", batches(0, 60), (0, 0))
    made = planned(tmp_path)
    assert ranges(made) == [("b", 0, 20), ("b", 20, 40), ("b", 40, 60)]
    assert not made.divergences


def test_a_leader_that_wrote_nothing_still_ends_older_logs(tmp_path: Path) -> None:
    replica(tmp_path / "a" / "t-0", batches(0, 40), (0, 0), (1, 40))
    replica(tmp_path / "b" / "t-0", batches(0, 60), (0, 0))
    made = planned(tmp_path)
    assert made.partitions[0].end_offset == 40
    assert differences(made) == [("b", 40, 60)]
    assert made.divergences[0].reason == "leader epoch 1 is above 0, and it ends there"


def test_a_lost_file_comes_from_another_replica(tmp_path: Path) -> None:
    directory = replica(tmp_path / "a" / "t-0", batches(0, 80, 1), (0, 0), (1, 0))
    replica(tmp_path / "b" / "t-0", batches(0, 70, 1), (1, 0))
    (directory / "00000000000000000020.log").unlink()
    made = planned(tmp_path)
    assert ranges(made) == [("a", 0, 20), ("b", 20, 40), ("a", 40, 60), ("a", 60, 80)]
    assert not made.lost
    assert not made.divergences


def test_a_lost_end_comes_from_another_replica_as_far_as_epochs_agree(tmp_path: Path) -> None:
    leader = replica(tmp_path / "a" / "t-0", [*batches(0, 40), *batches(40, 80, 2)], (0, 0), (2, 40))
    for name in ("00000000000000000020.log", "00000000000000000040.log", "00000000000000000060.log"):
        (leader / name).unlink()
    replica(tmp_path / "b" / "t-0", batches(0, 60), (0, 0))
    made = planned(tmp_path)
    assert ranges(made) == [("a", 0, 20), ("b", 20, 40)]
    assert differences(made) == [("b", 40, 60)]


def test_what_no_replica_has_is_lost_once(tmp_path: Path) -> None:
    directory = replica(tmp_path / "a" / "t-0", batches(0, 80))
    (directory / "00000000000000000020.log").unlink()
    made = planned(tmp_path)
    assert [(one.first_offset, one.end_offset, one.file) for one in made.lost] == [(20, 40, str(directory))]
    assert "a file is missing" in made.lost[0].reason


def test_a_file_that_cannot_be_opened_is_lost_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from klog.formats.errors import StorageError
    from klog.replicas import open_segment

    directory = replica(tmp_path / "a" / "t-0", batches(0, 60))
    really = open_segment.open_input

    def fail(path: str):
        if path.endswith("20.log"):
            raise StorageError("cannot be opened: Input/output error", file=path)
        return really(path)

    monkeypatch.setattr(open_segment, "open_input", fail)
    made = planned(tmp_path)
    bad = str(directory / "00000000000000000020.log")
    assert [(one.first_offset, one.end_offset, one.file) for one in made.lost] == [(20, 40, bad)]
    assert [problem.file for problem in made.problems] == [bad]
    assert [(first, end) for _, first, end in ranges(made)] == [(0, 20), (40, 60)]


def test_a_broken_tail_is_lost_unless_another_replica_has_it(tmp_path: Path) -> None:
    directory = replica(tmp_path / "a" / "t-0", batches(0, 40), (0, 0))
    log = directory / "00000000000000000020.log"
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 10)
    alone = planned(tmp_path)
    assert alone.partitions[0].end_offset == 35
    assert [(one.first_offset, one.end_offset, one.file) for one in alone.lost] == [(35, None, str(log))]
    replica(tmp_path / "b" / "t-0", batches(0, 40), (0, 0))
    both = planned(tmp_path)
    assert not both.lost
    assert both.partitions[0].end_offset == 40


def test_a_high_watermark_above_the_end_means_that_committed_records_are_gone(tmp_path: Path) -> None:
    replica(tmp_path / "a" / "t-0", batches(0, 40))
    write_checkpoint(tmp_path / "a", FileKind.REPLICATION_CHECKPOINT, t_0=55)
    made = planned(tmp_path)
    assert [(one.first_offset, one.end_offset) for one in made.lost] == [(40, 55)]
    assert "high watermark" in made.lost[0].reason


def test_a_last_segment_without_records_says_where_the_log_ends(tmp_path: Path) -> None:
    directory = replica(tmp_path / "a" / "t-0", batches(0, 40))
    (directory / "00000000000000000040.log").write_bytes(b"")
    assert planned(tmp_path).partitions[0].end_offset == 40
    assert not planned(tmp_path).lost
    (directory / "00000000000000000020.log").write_bytes(b"")
    made = planned(tmp_path)
    assert made.partitions[0].end_offset == 40
    assert [(one.first_offset, one.end_offset) for one in made.lost] == [(20, 40)]


def test_gaps_that_the_cleaner_left_are_no_loss(tmp_path: Path) -> None:
    log = Log(tmp_path / "a" / "t-0")
    log.append(batch(0, 2), batch(7, 2)).roll().append(batch(30, 3), batch(40)).roll().append(batch(50, 5))
    log.write()
    assert not planned(tmp_path).lost


def test_gaps_below_the_cleaners_checkpoint_are_no_loss(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "t-0"
    Log(directory).append(batch(0, 5)).roll().append(batch(20, 5)).roll().append(batch(30, 5)).write()
    write_checkpoint(tmp_path / "a", FileKind.CLEANER_CHECKPOINT, t_0=20)
    assert [(one.first_offset, one.end_offset) for one in planned(tmp_path).lost] == [(25, 30)]


def test_replicas_cleaned_at_different_times_agree(tmp_path: Path) -> None:
    from klog.kernel.batch_builder import BatchFields, RecordData, build_batch

    whole = batches(0, 40)
    thin = [
        bytes(
            build_batch(
                [RecordData(n, n, b"k", b"v"), RecordData(n + 4, n, b"k", b"v")], BatchFields(leader_epoch=0)
            )
        )
        for n in range(0, 40, 5)
    ]
    replica(tmp_path / "a" / "t-0", whole, (0, 0))
    replica(tmp_path / "b" / "t-0", [*thin, *batches(40, 45)], (0, 0))
    assert not planned(tmp_path).divergences


@given(
    common=st.integers(0, 12),
    ours=st.integers(1, 8),
    theirs=st.integers(1, 8),
    with_epochs=st.booleans(),
)
def test_a_difference_in_the_same_epoch_is_found_to_the_batch(
    tmp_path_factory: pytest.TempPathFactory, common: int, ours: int, theirs: int, with_epochs: bool
) -> None:
    """A replica that lies: other bytes at the same offsets, whatever its epochs say."""
    root = tmp_path_factory.mktemp("lies")
    entries = [(3, 0)] if with_epochs else []
    shared = batches(0, common * 5, 3)
    replica(root / "a" / "t-0", shared + batches(common * 5, (common + ours) * 5, 3), *entries)
    replica(root / "b" / "t-0", shared + batches(common * 5, (common + theirs) * 5, 3, size=11), *entries)
    made = planned(root)
    chosen, other = ("b", "a") if theirs > ours else ("a", "b")
    end = (common + min(ours, theirs)) * 5
    assert {name for name, _, _ in ranges(made)} == {chosen}
    assert differences(made) == [(other, common * 5, end)]


def test_another_topic_of_the_same_name_is_not_mixed_in(tmp_path: Path) -> None:
    old = replica(tmp_path / "a" / "t-0", batches(0, 60), (0, 0))
    new = replica(tmp_path / "b" / "t-0", batches(0, 40, size=12), (1, 0))
    write_topic_id(old, "HxEftVCTR1iKjvwIAj5sdg")
    write_topic_id(new, "k5EH42znTrS-WKZqw4WHuA")
    made = planned(tmp_path)
    assert made.partitions[0].end_offset == 40
    assert [(first, end) for _, first, end in differences(made)] == [(0, 40), (40, 60)]
    assert "another topic of the same name" in made.divergences[0].reason


def test_what_the_leader_deleted_is_not_taken_from_others(tmp_path: Path) -> None:
    replica(tmp_path / "a" / "t-0", batches(20, 60, 2), (2, 20))
    replica(tmp_path / "b" / "t-0", batches(0, 40, 2), (2, 0))
    write_checkpoint(tmp_path / "a", FileKind.LOG_START_CHECKPOINT, t_0=27)
    made = planned(tmp_path)
    assert ranges(made)[0] == ("a", 27, 40)
    assert planned(tmp_path, include_deleted=True).partitions[0].start_offset == 0


@pytest.mark.parametrize("state", ["future", "stray"])
def test_a_future_or_stray_copy_counts_only_if_there_is_no_other(tmp_path: Path, state: str) -> None:
    aside = replica(tmp_path / "a" / f"t-0.{'ab' * 16}-{state}", batches(0, 60), (1, 0))
    alone = planned(tmp_path)
    assert alone.partitions[0].end_offset == 60
    replica(tmp_path / "a" / "t-0", batches(0, 40), (0, 0))
    both = planned(tmp_path)
    assert both.partitions[0].end_offset == 40
    assert [path for path, _ in both.skipped] == [str(aside)]


def test_a_complete_swap_replaces_the_segments_it_covers(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "t-0"
    Log(directory).append(*batches(0, 20)).roll().append(*batches(20, 40)).roll().append(
        *batches(40, 60)
    ).write()
    cleaned = [batch(3, 2), batch(22, 1), batch(39, 1)]
    write_segment(directory, cleaned, 0, suffix=".swap")
    made = planned(tmp_path)
    splits = sorted(made.splits, key=lambda split: split.number)
    assert [(Path(split.file).name[-8:], split.first_offset, split.end_offset) for split in splits] == [
        ("log.swap", 0, 40),
        ("0040.log", 40, 60),
    ]
    assert sorted(Path(path).name for path, _ in made.skipped) == [
        "00000000000000000000.log",
        "00000000000000000020.log",
    ]
    assert not made.lost


def test_a_swap_beside_a_half_written_one_does_not_count(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "t-0"
    Log(directory).append(*batches(0, 20)).write()
    swap = write_segment(directory, batches(0, 10, size=3), suffix=".swap")
    write_segment(directory, batches(0, 5), suffix=".cleaned")
    made = planned(tmp_path)
    assert [Path(split.file).name for split in made.splits] == ["00000000000000000000.log"]
    assert str(swap) in [path for path, _ in made.skipped]


def test_deleted_segments_come_back_where_nothing_has_their_offsets(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "t-0"
    Log(directory).append(*batches(40, 60)).write()
    write_segment(directory, batches(20, 40), suffix=".deleted")
    write_segment(directory, batches(40, 50), suffix=".deleted")
    without = planned(tmp_path)
    assert (without.partitions[0].start_offset, len(without.skipped)) == (40, 2)
    made = planned(tmp_path, include_deleted=True)
    assert [(first, end) for _, first, end in ranges(made)] == [(20, 40), (40, 60)]


def test_where_segments_overlap_the_later_one_is_read(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "t-0"
    write_segment(directory, batches(0, 30))
    write_segment(directory, batches(20, 50, size=11))
    made = planned(tmp_path)
    assert [(first, end) for _, first, end in ranges(made)] == [(0, 20), (20, 50)]


@pytest.mark.parametrize(
    ("ours", "theirs", "end"),
    [
        (epochs((0, 0), (2, 50)), epochs((0, 0)), 50),
        (epochs((0, 0), (2, 50)), epochs((0, 0), (1, 40)), 40),
        (epochs((0, 0), (2, 50)), epochs((0, 0), (1, 60)), 50),
        (epochs((0, 0), (2, 50)), epochs((0, 0), (2, 50)), INT64_MAX),
        (epochs((5, 1000)), epochs((3, 0)), 1000),
        (epochs((5, 0)), (), INT64_MAX),
        ((), epochs((5, 0)), INT64_MAX),
    ],
)
def test_epochs_agree_to_the_end_of_the_largest_that_both_know(
    ours: Sequence[EpochEntry], theirs: Sequence[EpochEntry], end: int
) -> None:
    assert common_end(ours, theirs) == end


def test_epochs_of_a_replica_without_segments_do_no_harm(tmp_path: Path) -> None:
    replica(tmp_path / "a" / "t-0", batches(0, 40), (0, 0))
    empty = tmp_path / "b" / "t-0"
    empty.mkdir(parents=True)
    write_epochs(empty, (4, 0))
    made = planned(tmp_path)
    assert made.partitions[0].end_offset == 40


def test_a_partition_without_segments_is_empty(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "t-0"
    directory.mkdir(parents=True)
    write_epochs(directory, (4, 0))
    made = planned(tmp_path / "a")
    assert [(one.start_offset, one.end_offset) for one in made.partitions] == [(0, 0)]
    assert not made.splits
    assert not made.lost
