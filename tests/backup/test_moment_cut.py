"""A cut at a moment has each transaction whole or not at all, whatever the reads and clocks of partitions."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from klog.backup.moment.cut import ConsistentEnds
from klog.backup.moment.decisions import Decisions
from klog.backup.moment.values import Basis, Cut, EndRule, PartitionHistory
from klog.formats.names import TopicPartition
from tests.backup.simulated_logs import PARTITIONS, STATE, SimulatedCluster, Truth

SEEDS = range(60)


def _cut(histories: Mapping[TopicPartition, PartitionHistory], decisions: Decisions) -> Cut:
    return ConsistentEnds(histories, decisions).cut(0, {})


def _statuses(cluster: SimulatedCluster, cut: Cut, transaction: Truth) -> dict[TopicPartition, str | None]:
    return {
        each: cluster.status(each, transaction, cut[each].end_offset, cut[each].added)
        for each in transaction.records
    }


def _require_consistent(cluster: SimulatedCluster, cut: Cut) -> None:
    for transaction in cluster.truth:
        found = set(_statuses(cluster, cut, transaction).values())
        assert not found & {"open", "part open"}, transaction
        if "commit" in found or "part commit" in found:
            assert found == {"commit"}, (transaction, _statuses(cluster, cut, transaction))


def _committed(cluster: SimulatedCluster, cut: Cut) -> list[Truth]:
    return [each for each in cluster.truth if "commit" in _statuses(cluster, cut, each).values()]


@pytest.mark.parametrize("seed", SEEDS)
def test_without_skew_each_partition_ends_at_the_moment_and_has_what_was_decided_by_then(seed: int) -> None:
    cluster = SimulatedCluster(seed)
    at_ms = cluster.random.randint(1_000_000, cluster.now_ms)
    ends = {each: log.end_at(at_ms) for each, log in cluster.logs.items()}
    histories = {
        each: cluster.history(each, EndRule(ends[each], ends[each]), cluster.now_ms) for each in cluster.logs
    }

    cut = _cut(histories, cluster.decisions(cluster.now_ms))

    assert {each: found.end_offset for each, found in cut.items()} == ends
    _require_consistent(cluster, cut)
    assert _committed(cluster, cut) == [
        each
        for each in cluster.truth
        if each.records and each.is_commit and each.decided_ms is not None and each.decided_ms <= at_ms
    ]


@pytest.mark.parametrize("seed", range(20))
def test_markers_decide_where_the_coordinators_topic_was_compacted(seed: int) -> None:
    cluster = SimulatedCluster(seed, steps=200)
    compacted_ms = cluster.random.randint(1_000_000, cluster.now_ms)
    at_ms = cluster.random.randint(compacted_ms, cluster.now_ms)
    ends = {each: log.end_at(at_ms) for each, log in cluster.logs.items()}
    histories = {
        each: cluster.history(each, EndRule(ends[each], ends[each]), cluster.now_ms) for each in cluster.logs
    }

    cut = _cut(histories, cluster.decisions(cluster.now_ms, compacted_ms))

    assert {each: found.end_offset for each, found in cut.items()} == ends
    _require_consistent(cluster, cut)
    assert _committed(cluster, cut) == [
        each
        for each in cluster.truth
        if each.records and each.is_commit and each.decided_ms is not None and each.decided_ms <= at_ms
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_ends_that_do_not_fit_are_extended_and_nothing_decided_is_lost(seed: int) -> None:
    cluster = SimulatedCluster(seed, skew_ms=2)
    at_ms = cluster.random.randint(1_000_000, cluster.now_ms)
    ends = {each: log.end_at(at_ms + cluster.random.randint(-40, 40)) for each, log in cluster.logs.items()}
    histories = {
        each: cluster.history(each, EndRule(ends[each], ends[each]), cluster.now_ms) for each in cluster.logs
    }

    cut = _cut(histories, cluster.decisions(cluster.now_ms))

    _require_consistent(cluster, cut)
    for each, found in cut.items():
        assert ends[each] <= found.end_offset <= cluster.logs[each].end_at(at_ms + 40)
    committed = _committed(cluster, cut)
    for each in cluster.truth:
        if each.records and each.is_commit and each.decided_ms is not None and each.decided_ms <= at_ms - 40:
            assert each in committed


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_read_at_different_times_ends_where_it_is_whole(seed: int) -> None:
    """A run that reads a busy cluster has no partition at the same moment, and nothing after it."""
    cluster = SimulatedCluster(seed, skew_ms=2)
    at_ms = cluster.random.randint(1_000_000, cluster.now_ms)
    read_ms = {each: at_ms + cluster.random.randint(0, 60) for each in cluster.logs}
    histories = {each: cluster.history(each, EndRule(1 << 62), read_ms[each]) for each in cluster.logs}

    cut = _cut(histories, cluster.decisions(read_ms[STATE]))

    _require_consistent(cluster, cut)
    committed = _committed(cluster, cut)
    for each in cluster.truth:
        if each.records and each.is_commit and each.decided_ms is not None and each.decided_ms <= at_ms - 10:
            assert each in committed


@pytest.mark.parametrize("seed", range(10))
def test_markers_that_came_later_do_not_count_where_all_of_the_moment_was_deleted(seed: int) -> None:
    cluster = SimulatedCluster(seed)
    at_ms = cluster.random.randint(1_000_000, cluster.now_ms)
    ends = {each: log.end_at(at_ms) for each, log in cluster.logs.items()}
    emptied = PARTITIONS[0]
    start = cluster.logs[emptied].end_offset
    histories = {
        each: cluster.history(
            each, EndRule(ends[each], ends[each]), cluster.now_ms, start if each == emptied else 0
        )
        for each in cluster.logs
    }

    cut = _cut(histories, cluster.decisions(cluster.now_ms))

    assert {each: found.end_offset for each, found in cut.items()} == ends | {emptied: start}
    assert cut[emptied].rule_end == start


@pytest.mark.parametrize("seed", SEEDS)
def test_without_the_coordinators_topic_a_marker_decides(seed: int) -> None:
    cluster = SimulatedCluster(seed)
    at_ms = cluster.random.randint(1_000_000, cluster.now_ms)
    ends = {each: cluster.logs[each].end_at(at_ms) for each in PARTITIONS}
    histories = {
        each: cluster.history(each, EndRule(ends[each], ends[each]), cluster.now_ms) for each in PARTITIONS
    }

    cut = _cut(histories, Decisions())

    assert {each: found.end_offset for each, found in cut.items()} == ends
    _require_consistent(cluster, cut)


def test_records_decide_between_two_reads_only() -> None:
    cluster = SimulatedCluster(1)
    log = cluster.logs[PARTITIONS[0]]
    early, at_ms, late = 1_000_500, 1_000_700, 1_000_900
    bounds = EndRule(log.end_at(early), log.end_at(late), at_ms)

    history = cluster.history(PARTITIONS[0], bounds, cluster.now_ms)

    assert history.end_offset == log.end_at(at_ms)
    assert history.basis is Basis.TIMESTAMP
    # A clock that was wrong moves the end at most to the ends that the two reads knew.
    slow = cluster.history(
        PARTITIONS[0], EndRule(log.end_at(early), log.end_at(late), 1 << 60), cluster.now_ms
    )
    fast = cluster.history(PARTITIONS[0], EndRule(log.end_at(early), log.end_at(late), 0), cluster.now_ms)
    assert (fast.end_offset, slow.end_offset) == (log.end_at(early), log.end_at(late))


def test_a_partition_that_did_not_change_between_two_reads_needs_no_timestamps() -> None:
    cluster = SimulatedCluster(1)
    end = cluster.logs[PARTITIONS[0]].end_at(1_000_500)

    history = cluster.history(PARTITIONS[0], EndRule(end, end, 1), cluster.now_ms)

    assert (history.end_offset, history.basis) == (end, Basis.ARRIVAL)
