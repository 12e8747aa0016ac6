"""A plan passes over pieces with transactions that ended long before the moment, and the cut is the same."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterator, Mapping
from typing import BinaryIO

import pytest

from klog.backup.model import Piece, StoredObject
from klog.backup.moment.cut import ConsistentEnds
from klog.backup.moment.decisions import Decisions
from klog.backup.moment.open_transactions import OpenTransactions
from klog.backup.moment.values import EndRule, PartitionHistory
from klog.backup.moment.view import Part, PartitionView
from klog.backup.restoring.histories import Detail, PlanReading
from klog.formats.names import TopicPartition
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from tests.backup.simulated_logs import PARTITIONS, STATE, SimulatedCluster

SEEDS = range(40)
_BATCHES_OF_A_PIECE = 5


class Pieces:
    """The pieces of a simulated partition, and which were opened."""

    def __init__(self, cluster: SimulatedCluster, partition: TopicPartition, view_ms: int) -> None:
        self.opened: list[str] = []
        batches = [batch for at, batch in cluster.logs[partition].batches if at <= view_ms]
        self._data: dict[str, bytes] = {}
        self.parts = tuple(self._parts(batches))

    def _parts(self, batches: list[bytes]) -> Iterator[Part]:
        for number in range(0, len(batches), _BATCHES_OF_A_PIECE):
            data, table = b"".join(batches[number : number + _BATCHES_OF_A_PIECE]), BatchTable()
            kernel.scan(data, 0, True, table)
            transactions = OpenTransactions()
            deque(transactions.follow(memoryview(data), table, 0, len(table)), maxlen=0)
            name = str(number)
            self._data[name] = data
            first, end = table.base_offset[0], table.last_offset[-1] + 1
            producers = transactions.summary()
            piece = Piece(
                0,
                0,
                len(data),
                first,
                end,
                max(table.max_timestamp),
                "",
                name,
                len(data),
                has_transactions=bool(producers),
                producers=producers,
            )
            yield Part(piece, 0, 0)

    def open_piece(self, piece: Piece) -> BinaryIO:
        self.opened.append(piece.name)
        return io.BytesIO(self._data[piece.name])

    def read_stored(self, stored: StoredObject) -> bytes:
        raise AssertionError(stored)


def read(
    cluster: SimulatedCluster, partition: TopicPartition, rule: EndRule, view_ms: int, settled_ms: int
) -> tuple[PartitionHistory, int]:
    """The history, and how many pieces were passed over."""
    pieces = Pieces(cluster, partition, view_ms)
    view = PartitionView(partition, None, pieces.parts, 0, None, None, (), None, view_ms, (), ())
    found = PlanReading(pieces, Detail.CUT, settled_ms).read(view, rule)
    return found.history, len(pieces.parts) - len(pieces.opened)


def compare(
    cluster: SimulatedCluster,
    rules: Mapping[TopicPartition, EndRule],
    read_ms: Mapping[TopicPartition, int],
    settled_ms: int,
) -> int:
    """Both cuts are the same; returns how many pieces were passed over."""
    partitions = [each for each in rules if each != STATE]
    histories = {each: cluster.history(each, rule, read_ms[each]) for each, rule in rules.items()}
    decisions = cluster.decisions(read_ms[STATE]) if STATE in rules else Decisions()
    whole = ConsistentEnds(histories, decisions)
    since_ms = whole.open_since_ms()
    if since_ms is not None and since_ms <= settled_ms:
        settled_ms = since_ms - 100
    read_ones = {each: read(cluster, each, rules[each], read_ms[each], settled_ms) for each in partitions}
    passed = {each: history for each, (history, _) in read_ones.items()}

    found = ConsistentEnds({**histories, **passed}, decisions)

    assert found.open_since_ms() == since_ms
    assert found.cut(0, {}) == whole.cut(0, {})
    return sum(count for _, count in read_ones.values())


@pytest.mark.parametrize("has_decisions", [True, False])
def test_the_cut_is_the_same_at_random_moments(has_decisions: bool) -> None:
    passed = 0
    for seed in SEEDS:
        cluster = SimulatedCluster(seed, skew_ms=2)
        at_ms = cluster.random.randint(1_000_000, cluster.now_ms)
        logs = (*PARTITIONS, STATE) if has_decisions else PARTITIONS
        ends = {each: cluster.logs[each].end_at(at_ms + cluster.random.randint(-40, 40)) for each in logs}
        rules = {each: EndRule(end, end) for each, end in ends.items()}

        passed += compare(cluster, rules, dict.fromkeys(rules, cluster.now_ms), at_ms - 150)

    assert passed > 100


@pytest.mark.parametrize("has_decisions", [True, False])
def test_the_cut_is_the_same_if_partitions_were_read_at_different_times(has_decisions: bool) -> None:
    passed = 0
    for seed in SEEDS:
        cluster = SimulatedCluster(seed, skew_ms=2)
        at_ms = cluster.random.randint(1_000_000, cluster.now_ms)
        logs = (*PARTITIONS, STATE) if has_decisions else PARTITIONS
        read_ms = {each: at_ms + cluster.random.randint(0, 60) for each in logs}

        passed += compare(cluster, dict.fromkeys(logs, EndRule(1 << 62)), read_ms, min(read_ms.values()) - 50)

    assert passed > 100


def test_what_ends_behind_an_end_that_is_given_is_read() -> None:
    """All of it is old, and what is open at the end needs the markers behind it."""
    passed = 0
    for seed in SEEDS:
        cluster = SimulatedCluster(seed)
        at_ms = cluster.random.randint(1_000_500, cluster.now_ms)
        rules = {
            each: EndRule(log.end_at(at_ms), log.end_at(at_ms), is_given=True)
            for each, log in cluster.logs.items()
        }

        passed += compare(cluster, rules, dict.fromkeys(rules, cluster.now_ms), cluster.now_ms)

    assert passed > 100
