"""Replicas as brokers leave them: any history of appends, fetches and (unclean) elections makes one log."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.export.options import ReadOptions
from klog.export.planner import plan
from klog.export.reader import read_split
from klog.formats.checkpoints import EpochEntry
from klog.replicas.divergence import common_end
from klog.storage.repair.leader_epochs import LeaderEpochs
from tests.export.logs import batch, replica

Written = tuple[int, int]
"""A record, told by its leader's epoch and a number of its own."""


@dataclass
class Broker:
    """A replica: its records by offset, and its leader epochs."""

    records: list[Written] = field(default_factory=list)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)

    def follow(self, leader: Broker, fetched: int) -> None:
        """What a follower does: cut the log where it parts from the leader's (KIP-279), then fetch some."""
        end = min(common_end(leader.epochs.entries, self.epochs.entries), len(leader.records))
        del self.records[end:]
        # Also where no record goes: it may have begun an epoch as a leader and written nothing in it.
        self.epochs.truncate_from_end(min(end, len(self.records)))
        for record in leader.records[len(self.records) : len(self.records) + fetched]:
            self.epochs.assign_newer(EpochEntry(record[0], len(self.records)))
            self.records.append(record)

    def write(self, directory: Path) -> None:
        batches = [
            batch(offset, leader_epoch=epoch, size=5 + number % 7, at=number)
            for offset, (epoch, number) in enumerate(self.records)
        ]
        entries = [(entry.epoch, entry.start_offset) for entry in self.epochs.entries]
        replica(directory, batches, *entries, segment_batches=5)


Step = tuple[str, int, int]
STEPS: st.SearchStrategy[Step] = st.tuples(
    st.sampled_from(("append", "append", "fetch", "fetch", "elect")), st.integers(0, 2), st.integers(1, 6)
)


def live(steps: list[Step]) -> tuple[list[Broker], Broker]:
    """Three brokers after some steps, and the last leader."""
    brokers = [Broker() for _ in range(3)]
    leader, epoch, number = brokers[0], 0, 0
    leader.epochs.assign(EpochEntry(0, 0))
    for kind, index, count in steps:
        if kind == "append":
            for _ in range(count):
                leader.records.append((epoch, number))
                number += 1
        elif kind == "fetch" and brokers[index] is not leader:
            brokers[index].follow(leader, count)
        elif kind == "elect":
            leader, epoch = brokers[index], epoch + 1
            leader.epochs.assign(EpochEntry(epoch, len(leader.records)))
    return brokers, leader


@settings(max_examples=150)
@given(st.lists(STEPS, max_size=25))
def test_the_last_leaders_log_counts_and_other_records_are_listed(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step]
) -> None:
    root = tmp_path_factory.mktemp("history")
    brokers, leader = live(steps)
    for number, broker in enumerate(brokers):
        broker.write(root / str(number) / "t-0") if broker.records else None
    if not leader.records:
        return
    made = plan(ReadOptions((str(root),), metadata_columns=("leaderEpoch",)))
    read = []
    for split in sorted(made.splits, key=lambda split: split.number):
        for rows in read_split(
            split,
            ReadOptions((), metadata_columns=("leaderEpoch",)),
            columns=["offset", "timestamp", "leaderEpoch"],
            on_lost=pytest.fail,
        ):
            read += [
                (row["offset"], (row["leaderEpoch"], round(row["timestamp"].timestamp() * 1000)))
                for row in rows.to_pylist()
            ]
    assert read == list(enumerate(leader.records))
    assert not made.lost
    named: dict[str, set[int]] = {}
    for one in made.divergences:
        named.setdefault(Path(one.other).parts[-2], set()).update(range(one.first_offset, one.end_offset))
    differing = {
        str(number): {
            offset
            for offset, record in enumerate(broker.records)
            if leader.records[offset : offset + 1] != [record]
        }
        for number, broker in enumerate(brokers)
    }
    assert named == {number: offsets for number, offsets in differing.items() if offsets}


@settings(max_examples=100)
@given(st.lists(STEPS, max_size=25), st.sets(st.integers(0, 6), min_size=1, max_size=3))
def test_what_the_last_leader_lost_comes_from_others_only_if_it_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step], gone: set[int]
) -> None:
    root = tmp_path_factory.mktemp("history")
    brokers, leader = live(steps)
    if not leader.records:
        return
    for number, broker in enumerate(brokers):
        if broker.records:
            broker.write(root / str(number) / "t-0")
    disk = root / str(brokers.index(leader)) / "t-0"
    kept = {offset for offset in range(len(leader.records)) if offset // 5 not in gone}
    for segment in gone:
        for path in disk.glob(f"{segment * 5:020d}.*"):
            path.unlink()
    if not kept:
        return
    made = plan(ReadOptions((str(root),)))
    came: set[int] = set()
    for split in made.splits:
        offsets = range(split.first_offset, split.end_offset)
        holder = brokers[int(Path(split.file).parts[-3])]
        assert all(holder.records[offset] == leader.records[offset] for offset in offsets)
        came.update(offsets)
    start = made.partitions[0].log_start_offset
    assert {offset for offset in kept if offset >= start} <= came
