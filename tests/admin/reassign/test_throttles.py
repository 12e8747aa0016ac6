"""Throttles: what is set, what is noted about the time before, and what is restored."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klog.admin.configs import Change, ConfigEntry, Operation, Synonym
from klog.admin.reassign.moves import Move
from klog.admin.reassign.throttles import (
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    RATES,
    clearing,
    limiting,
    own_entries,
    rates_of,
    restoring,
    with_entries,
    without_entries,
)
from klog.admin.reassign.values import PartitionAssignment
from klog.formats.names import TopicPartition

rates = st.none() | st.integers(0, 2**63 - 1).map(str)


class Broker:
    """The configs of a broker, as DescribeConfigs tells them: the values of unknown ones are not told."""

    def __init__(self, **values: str | None) -> None:
        self.values = {name: value for name, value in values.items() if value is not None}

    @property
    def rates(self):
        source = "DYNAMIC_BROKER_CONFIG"
        return rates_of(
            ConfigEntry(
                name,
                value if name in RATES else None,
                source,
                name not in RATES,
                True,
                (Synonym(name, value if name in RATES else None, source),),
            )
            for name, value in self.values.items()
        )

    def alter(self, changes: list[Change]) -> None:
        assert len({change.name for change in changes}) == len(changes)
        for change in changes:
            if change.operation is Operation.SET:
                self.values[change.name] = change.value
            else:
                self.values.pop(change.name, None)


@given(st.fixed_dictionaries(dict.fromkeys(RATES, rates)), st.lists(st.integers(0, 2**63 - 1), min_size=1))
def test_rates_are_what_they_were_after_any_number_of_runs(before, limits) -> None:
    broker = Broker(**before)
    for limit in limits:
        broker.alter(limiting(broker.rates, dict.fromkeys(RATES, limit)))
        assert {broker.values[name] for name in RATES} == {str(limit)}
        assert not limiting(broker.rates, dict.fromkeys(RATES, limit))
    broker.alter(restoring(broker.rates))
    assert broker.values == {name: value for name, value in before.items() if value is not None}
    assert not restoring(broker.rates)


@given(rates, st.integers(0, 1000), st.integers(1001, 2000))
def test_a_rate_that_somebody_else_has_set_since_then_is_kept(before, limit, later) -> None:
    broker = Broker(**{LEADER_RATE: before})
    broker.alter(limiting(broker.rates, {LEADER_RATE: limit}))
    broker.alter([Change(LEADER_RATE, Operation.SET, str(later))])
    other = Broker(**broker.values)
    broker.alter(restoring(broker.rates))
    assert broker.values == {LEADER_RATE: str(later)}
    other.alter(limiting(other.rates, {LEADER_RATE: limit}))
    other.alter(restoring(other.rates))
    assert other.values == {LEADER_RATE: str(later)}


@given(rates, st.integers(0, 1000))
def test_rates_that_kafkas_tool_has_removed_stay_removed(before, limit) -> None:
    broker = Broker(**{LEADER_RATE: before})
    broker.alter(limiting(broker.rates, {LEADER_RATE: limit}))
    broker.alter([Change(name, Operation.DELETE) for name in RATES])
    broker.alter(restoring(broker.rates))
    assert broker.values == {}


@given(rates, st.integers(0, 1000))
def test_clearing_removes_all_rates_but_restores_those_that_klog_has_set(before, limit) -> None:
    broker = Broker(**{RATES[1]: "5", LEADER_RATE: before})
    broker.alter(limiting(broker.rates, {LEADER_RATE: limit}))
    broker.alter(clearing(broker.rates))
    assert broker.values == ({} if before is None else {LEADER_RATE: before})


replicas = st.tuples(st.integers(0, 12), st.integers(0, 12))
lists = st.none() | st.just("*") | st.sets(replicas).map(lambda found: ",".join(f"{p}:{b}" for p, b in found))


@given(lists, st.sets(replicas, min_size=1))
def test_lists_have_klogs_entries_and_lose_exactly_these(before, own) -> None:
    entries = [f"0{partition}:{broker}" for partition, broker in sorted(own)]
    value = with_entries(before, entries)
    if before == "*":
        assert value is None
        return
    throttled = {tuple(map(int, entry.split(":"))) for entry in (value or before).split(",")}
    assert throttled >= own
    if value is not None:
        assert with_entries(value, entries) is None
        assert without_entries(value) == (before or "")


def test_only_entries_of_some_partitions_are_removed() -> None:
    assert without_entries("0:1,00:2,01:2,010:2", {0, 10}) == "0:1,01:2"
    assert without_entries("0:1,10:2") is None
    assert without_entries("*") is None


def test_sources_and_destinations_of_a_move_are_throttled() -> None:
    move = Move(PartitionAssignment(TopicPartition("t", 3), (2, 1)), (0, 1))
    assert own_entries([move]) == {"t": {LEADER_REPLICAS: ["03:0", "03:1"], FOLLOWER_REPLICAS: ["03:2"]}}
    running = Move(PartitionAssignment(TopicPartition("t", 3), (2, 1)), (2, 1, 0), (2,), (2, 1))
    assert own_entries([running])["t"] == own_entries([move])["t"] | {LEADER_REPLICAS: ["03:1", "03:0"]}
