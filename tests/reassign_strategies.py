"""Hypothesis strategies of clusters and goals for reassignment plans."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from klog.admin.reassign.goals import Goal
from klog.admin.reassign.values import BrokerPlace, ClusterState, PartitionState
from klog.formats.names import TopicPartition

_SIZES = st.sampled_from([0, 1, 100, 1000]) | st.integers(0, 1000) | st.integers(10**9, 10**10)


@st.composite
def cluster_states(
    draw: st.DrawFn,
    *,
    most_brokers: int = 8,
    most_partitions: int = 24,
    sizes: st.SearchStrategy[int] = _SIZES,
    spread: bool = False,
) -> ClusterState:
    """Clusters of brokers with or without racks; some brokers may be empty, some replicas on dead brokers.

    With `spread`, all replicas are on live brokers, and partitions are on as many racks as the cluster has.
    """
    ids = sorted(draw(st.sets(st.integers(0, 30), min_size=2, max_size=most_brokers)))
    rack_count = draw(st.sampled_from([0, 0, 2, 3, 4]))
    racks = {broker: f"r{draw(st.integers(0, rack_count - 1))}" if rack_count else None for broker in ids}
    holding = sorted(
        draw(st.sets(st.sampled_from(ids), min_size=1)) | set(_one_of_each_rack(ids, racks) if spread else ())
    )
    dead = [] if spread else draw(st.lists(st.integers(31, 33), max_size=1))
    parts = []
    for topic, count in enumerate(
        draw(st.lists(st.integers(1, most_partitions // 2), min_size=1, max_size=3))
    ):
        factor = draw(st.integers(1, min(4, len(holding))))
        for number in range(count):
            order = draw(st.permutations([*holding, *dead]))
            replicas = tuple((_spread(order, racks) if spread else order)[:factor])
            alive = [broker for broker in replicas if broker in racks]
            parts.append(
                PartitionState(
                    TopicPartition(f"t{topic}", number),
                    replicas,
                    draw(st.sampled_from([*alive, None])) if alive else None,
                    tuple(alive),
                    draw(sizes),
                )
            )
    return ClusterState(tuple(BrokerPlace(broker, racks[broker]) for broker in ids), tuple(parts))


def _one_of_each_rack(order: list[int], racks: dict[int, str | None]) -> list[int]:
    first: dict[object, int] = {}
    for broker in order:
        first.setdefault(racks[broker], broker)
    return list(first.values())


def _spread(order: list[int], racks: dict[int, str | None]) -> list[int]:
    """The brokers in another order, in which the first ones are on different racks."""
    first = _one_of_each_rack(order, racks)
    return [*first, *(broker for broker in order if broker not in first)]


@st.composite
def goals(draw: st.DrawFn, state: ClusterState) -> Goal:
    """Goals that can be met on a cluster, except that brokers may be too few for the replication factor."""
    alive = [broker.broker_id for broker in state.brokers]
    holding = {broker for part in state.partitions for broker in part.replicas}
    some = st.sets(st.sampled_from(alive), min_size=1).map(frozenset)
    factor = draw(st.none() | st.integers(1, min(4, len(alive))))
    match draw(st.sampled_from(["brokers", "drain", "add", "drain and add", "factor"])):
        case "brokers":
            goal = Goal(brokers=draw(some))
        case "drain":
            goal = Goal(drained=frozenset({draw(st.sampled_from(sorted({*alive, *holding})))}))
        case "add":
            goal = Goal(added=draw(some))
        case "drain and add":
            added = draw(some)
            goal = Goal(added=added, drained=(draw(some) | (holding - set(alive))) - added)
        case _:
            goal, factor = Goal(), factor or 2
    return replace(goal, replication_factor=factor, keep_leaders=draw(st.booleans()))
