"""Where batches are lost in the middle of a partition, all transactions around them end as they did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from klog.backup.moment.cut import ConsistentEnds
from klog.backup.moment.history import HistoryBuilder
from klog.backup.moment.values import Cut, EndRule, Gap, PartitionCut, PartitionHistory
from klog.formats.constants import CONTROL_BIT
from klog.formats.errors import UsageError
from klog.formats.names import TopicPartition
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.kernel.markers import marker_of_batch
from tests.backup.simulated_logs import PARTITIONS, STATE, SimulatedCluster, Truth

SEEDS = range(60)


class Damaged:
    """A cluster of whose first partition some batches in the middle are lost."""

    def __init__(self, seed: int, lost: int = 12) -> None:
        self.cluster = SimulatedCluster(seed)
        self.partition = PARTITIONS[0]
        batches = [batch for _, batch in self.cluster.logs[self.partition].batches]
        first = self.cluster.random.randrange(1, len(batches) - lost - 1)
        ends = self.cluster.logs[self.partition].ends
        self.gap = Gap(ends[first - 1], ends[first + lost - 1])
        self.kept = b"".join(batches[:first]), b"".join(batches[first + lost :])

    def history(self, *, gaps: bool = True, complete_ms: int | None = None) -> PartitionHistory:
        reader = HistoryBuilder(EndRule(0), [self.gap] if gaps else [])
        for data in self.kept:
            table = BatchTable()
            kernel.scan(data, 0, True, table)
            reader.follow(memoryview(data), table)
        return reader.finish(self.cluster.now_ms if complete_ms is None else complete_ms)

    def histories(
        self, partitions: list[TopicPartition], complete_ms: int | None = None
    ) -> dict[TopicPartition, PartitionHistory]:
        cluster = self.cluster
        found = {each: cluster.history(each, EndRule(0), cluster.now_ms) for each in partitions}
        return {**found, self.partition: self.history(complete_ms=complete_ms)}

    def cuts(self, histories: Mapping[TopicPartition, PartitionHistory]) -> Cut:
        return ConsistentEnds(histories, self.cluster.decisions(self.cluster.now_ms)).cut(0, {})

    def cut(self, partitions: list[TopicPartition]) -> PartitionCut:
        return self.cuts(self.histories(partitions))[self.partition]

    def ends(self, histories: Mapping[TopicPartition, PartitionHistory]) -> dict[TopicPartition, int]:
        return {partition: cut.end_offset for partition, cut in self.cuts(histories).items()}

    def seen(self, cut: PartitionCut) -> dict[int, str]:
        """What became of each transactional record that is left, by its offset."""
        found: dict[int, str] = {}
        open_ones: dict[int, list[int]] = {}

        def end(producer_id: int, *, is_aborted: bool) -> None:
            for offset in open_ones.pop(producer_id, []):
                found[offset] = "abort" if is_aborted else "commit"

        for data, added in zip(self.kept, (cut.gaps.get(self.gap, ()), cut.added), strict=True):
            table = BatchTable()
            kernel.scan(data, 0, True, table)
            for row, producer_id in enumerate(table.producer_id):
                if table.attributes[row] & CONTROL_BIT:
                    start = table.position[row]
                    marker = marker_of_batch(memoryview(data)[start : start + table.size[row]])
                    assert marker is not None
                    end(producer_id, is_aborted=marker.aborted)
                elif producer_id >= 0:
                    offsets = range(table.base_offset[row], table.last_offset[row] + 1)
                    open_ones.setdefault(producer_id, []).extend(offsets)
            for each in added:
                end(each.producer_id, is_aborted=each.marker.aborted)
        assert not open_ones
        return found

    def expected(self) -> dict[int, str]:
        return {
            offset: "commit" if each.is_commit and each.decided_ms is not None else "abort"
            for each in self.cluster.truth
            for offset in each.records.get(self.partition, [])
            if not self.gap.first_offset <= offset < self.gap.end_offset
        }


@pytest.mark.parametrize("seed", SEEDS)
def test_each_record_around_a_gap_is_committed_or_aborted_as_it_was(seed: int) -> None:
    damaged = Damaged(seed)

    cut = damaged.cut([*PARTITIONS, STATE])

    assert damaged.seen(cut) == damaged.expected()
    assert cut.end_offset == damaged.cluster.logs[damaged.partition].end_offset
    for gap, markers in cut.gaps.items():
        assert len(markers) <= gap.end_offset - gap.first_offset


@pytest.mark.parametrize("seed", SEEDS)
def test_without_the_decisions_other_partitions_say_what_became_of_a_transaction(seed: int) -> None:
    damaged = Damaged(seed)
    cluster = damaged.cluster

    seen = damaged.seen(damaged.cut(PARTITIONS))

    for each in cluster.truth:
        if _has_marker_elsewhere(damaged, each):
            for offset in each.records.get(damaged.partition, []):
                if offset in seen:
                    assert seen[offset] == ("commit" if each.is_commit else "abort")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_transaction_that_is_lost_in_a_gap_moves_no_end(seed: int) -> None:
    """Also if only its marker could say that the partition was read after its decision."""
    damaged = Damaged(seed)
    with_gap = damaged.histories([*PARTITIONS, STATE], complete_ms=0)
    whole = {
        **with_gap,
        damaged.partition: replace(
            damaged.cluster.history(damaged.partition, EndRule(0), damaged.cluster.now_ms), complete_ms=0
        ),
    }

    assert damaged.ends(with_gap) == damaged.ends(whole)


def _has_marker_elsewhere(damaged: Damaged, transaction: Truth) -> bool:
    """Whether another partition has records of it, and so a marker."""
    others = set(transaction.records) - {damaged.partition}
    later = [each for each in damaged.cluster.truth if each.producer_id == transaction.producer_id]
    return bool(others) and later.index(transaction) < len(later) - 1


def test_a_gap_without_markers_would_mix_transactions() -> None:
    """The markers in gaps are needed: without them records are seen otherwise for some seeds."""
    mixed = 0
    for seed in SEEDS:
        damaged = Damaged(seed)
        cut = damaged.cut([*PARTITIONS, STATE])
        try:
            seen = damaged.seen(PartitionCut(cut.end_offset, cut.rule_end, cut.basis, cut.added))
        except AssertionError:
            seen = {}
        mixed += seen != damaged.expected()
    assert mixed > 5


def test_a_gap_without_a_place_for_markers_is_refused() -> None:
    for seed in SEEDS:
        damaged = Damaged(seed, lost=1)
        is_full = sum(
            each.is_open_at(damaged.gap.first_offset) for each in damaged.history(gaps=False).transactions
        )
        if is_full > damaged.gap.end_offset - damaged.gap.first_offset:
            with pytest.raises(
                UsageError, match=f"--offsets FILE with the offset {damaged.gap.first_offset}"
            ):
                damaged.history()
            return
    raise AssertionError("no seed has such a gap")
