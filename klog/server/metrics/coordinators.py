"""Metrics of the group coordinator and of the transaction coordinator.

Kafka's `kafka.coordinator.group:type=GroupMetadataManager`, `kafka.server:type=group-coordinator-metrics`,
`kafka.server:type=transaction-coordinator-metrics` and
`kafka.coordinator.transaction:type=TransactionMarkerChannelManager`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import astuple
from typing import Final, NamedTuple

from klog.coordinator.groups.classic.group import Group
from klog.coordinator.groups.consumer.values import ConsumerGroupState
from klog.coordinator.groups.coordinator import GroupCoordinator
from klog.coordinator.groups.offsets.offsets import GroupOffsets
from klog.coordinator.groups.services import GroupCounts
from klog.coordinator.groups.values import GroupState
from klog.coordinator.runtime.ownership import LoadTimes
from klog.coordinator.transactions.values import TransactionState
from klog.formats.names import PartitionKey
from klog.server.coordinators.transaction_coordinator import BrokerTransactions
from klog.server.metrics.exposition import Metric, counter, gauge, gauges

_MANAGER: Final = "kafka_coordinator_group_groupmetadatamanager_"
_GROUPS: Final = "kafka_server_group_coordinator_metrics_"
_TRANSACTIONS: Final = "kafka_server_transaction_coordinator_metrics_"
_MARKERS: Final = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
_COUNTED: Final = (
    ("offset_commit", "offsets committed"),
    ("offset_expiration", "offsets that were past their retention"),
    ("offset_deletion", "offsets that administrators deleted"),
    ("group_completed_rebalance", "rebalances completed"),
)
"""In the order of the fields of `GroupCounts`."""

_GROUPS_A_TURN: Final = 500
_WITHOUT_READERS: Final = (
    GroupState.EMPTY,
    GroupState.DEAD,
    ConsumerGroupState.EMPTY,
    ConsumerGroupState.DEAD,
)

LogEnd = Callable[[PartitionKey], int | None]
"""The offset up to which consumers may read a partition; None if this broker does not lead it."""


class _Found(NamedTuple):
    """How many groups are in each state, and how many offsets they have."""

    classic: Counter[GroupState]
    consumer: Counter[ConsumerGroupState]
    offsets: int
    lag: int
    largest_lag: int


def group_metrics(
    groups: GroupCoordinator,
    log_end: LogEnd,
    now: GroupCounts,
    before: GroupCounts,
    seconds: float,
    pause: Callable[[], None],
) -> Iterator[Metric]:
    """The metrics of groups; `before` was taken so many seconds ago. `pause` lets other threads run."""
    found = _found(groups, log_end, pause)
    total = found.classic.total() + found.consumer.total()
    yield gauge(f"{_MANAGER}numgroups", "groups that this broker coordinates", total)
    yield gauge(f"{_MANAGER}numoffsets", "offsets that they have committed", found.offsets)
    for state in GroupState:
        name = state.value.lower()
        yield gauge(f"{_MANAGER}numgroups{name}", f"classic groups in {state.value}", found.classic[state])
    counts = {state.value.lower(): found.consumer[state] for state in ConsumerGroupState}
    what = "groups of the protocol of Kafka 4 (KIP-848) by state"
    yield gauges(f"{_GROUPS}consumer_group_count", what, "state", counts)
    unread = "offsets that groups with members have not read, in partitions that this broker leads"
    yield gauge("klog_coordinator_group_lag", unread, found.lag)
    yield gauge("klog_coordinator_group_lag_max", f"the most {unread}", found.largest_lag)
    for (name, what), count, earlier in zip(_COUNTED, astuple(now), astuple(before), strict=True):
        rate = (count - earlier) / seconds if seconds > 0 else 0.0
        yield gauge(f"{_GROUPS}{name}_rate", f"{what} a second, in the last minute", rate)
        yield counter(f"{_GROUPS}{name}_count", what, count)
    yield from _load_metrics(_GROUPS, groups.load_times)


def _found(groups: GroupCoordinator, log_end: LogEnd, pause: Callable[[], None]) -> _Found:
    found = _Found(Counter(), Counter(), 0, 0, 0)
    seen = 0
    for partition in groups.owned():
        for entry in list(partition.entries.values()):
            seen += 1
            if seen % _GROUPS_A_TURN == 0:
                pause()
            group = entry.group
            if isinstance(group, Group):
                found.classic[group.state] += 1
            else:
                found.consumer[group.state] += 1
            found = found._replace(offsets=found.offsets + entry.offsets.count)
            if group.state not in _WITHOUT_READERS:
                lags = _lags(entry.offsets, log_end)
                seen += len(lags)
                found = found._replace(
                    lag=found.lag + sum(lags), largest_lag=max(found.largest_lag, *lags, 0)
                )
    return found


def _lags(offsets: GroupOffsets, log_end: LogEnd) -> list[int]:
    """How much of each partition that this broker leads is not read."""
    ends = [(log_end(key), offset) for key, offset in offsets.positions()]
    return [max(end - offset, 0) for end, offset in ends if end is not None]


def _load_metrics(prefix: str, times: LoadTimes) -> Iterator[Metric]:
    help_text = "milliseconds to load a partition, since the start"
    yield gauge(f"{prefix}partition_load_time_max", f"the most {help_text}", times.max_ms)
    yield gauge(f"{prefix}partition_load_time_avg", f"mean {help_text}", times.mean_ms)


def transaction_metrics(transactions: BrokerTransactions, pause: Callable[[], None]) -> Iterator[Metric]:
    """The metrics of transactions. `pause` lets other threads run."""
    found: Counter[TransactionState] = Counter()
    seen = completing = 0
    for partition in transactions.coordinator.owned():
        completing += partition.completions_waiting
        for transaction in list(partition.transactions.values()):
            seen += 1
            if seen % _GROUPS_A_TURN == 0:
                pause()
            found[transaction.record.state] += 1
    what = "transactional ids that this broker coordinates, by state; Ongoing ones are open"
    counts = {state.title: found[state] for state in TransactionState}
    yield gauges("klog_coordinator_transactions", what, "state", counts)
    yield gauge(
        f"{_MARKERS}unknowndestinationqueuesize",
        "markers that wait for the leader of their partition",
        transactions.markers.waiting_for_leaders,
    )
    yield gauge(
        f"{_MARKERS}logappendretryqueuesize",
        "transactions whose completion is written again after an error",
        completing,
    )
    yield from _load_metrics(_TRANSACTIONS, transactions.coordinator.load_times)
