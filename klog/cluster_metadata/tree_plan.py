"""What a plan says of a metadata tree that will be written, ZooKeeper's or klog's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from klog.cluster_metadata import tree_output
from klog.cluster_metadata.consistency import problems_of
from klog.cluster_metadata.conversion_plan import Plan, Step
from klog.cluster_metadata.model import Cluster
from klog.cluster_metadata.tree_nodes import nodes


def tree_plan(
    where: str, what: str, cluster: Cluster, write: Callable[[], object], kept_back: Sequence[str]
) -> Plan:
    """The plan for a tree with a cluster. `kept_back` is what it lacks of the source already."""
    held, losses = tree_output.held(cluster)
    count = size_bytes = 0
    for path, data in nodes(held):
        count += 1
        size_bytes += len(path) + len(data or b"")
    topics = f"{len(held.topics):,} topics, {len(list(held.partitions)):,} partitions"
    return Plan(
        (Step(where, f"{what} with {topics} in {count:,} nodes", size_bytes, pieces=count),),
        write,
        held,
        (*kept_back, *losses),
        problems=tuple(problems_of(held)),
        places=(where,),
    )
