"""The rows of the pages of `klog top`, from a sample of the cluster and the rates that were taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from klog.admin.groups import Group
from klog.admin.health import Problem
from klog.admin.rates import Sample
from klog.commands.cluster.top_view import Page, View
from klog.commands.shared.tables import Row
from klog.formats.names import TopicPartition


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at a time. `topics` and `groups` have the fields that programs get."""

    now_ms: int
    sample: Sample
    problems: Sequence[Problem]
    topics: Sequence[Row]
    groups: Sequence[Row]


def rows_of(view: View, look: Look) -> Sequence[Row]:
    """The rows of the view's page, neither filtered nor sorted."""
    match view.page:
        case Page.TOPICS:
            return look.topics
        case Page.GROUPS:
            return look.groups
        case Page.BROKERS:
            return _brokers(look.sample)
        case Page.TOPIC:
            return _partitions(look.sample, view.name)
        case Page.BROKER:
            return _replicas(look.sample, int(view.name))
        case Page.GROUP:
            return [
                row for group in look.sample.groups if group.group_id == view.name for row in _lags(group)
            ]


def groups_beside(view: View, look: Look) -> Sequence[Row]:
    """The groups that are shown below the rows: all below the topics, those that read a topic below it."""
    if view.page is Page.TOPICS:
        return look.groups
    if view.page is not Page.TOPIC:
        return ()
    readers = {
        group.group_id
        for group in look.sample.groups
        if any(each.partition.topic == view.name for each in group.partitions)
    }
    return [row for row in look.groups if row["group"] in readers]


def _partitions(sample: Sample, name: str) -> list[Row]:
    return [
        {
            "partition": part.partition,
            "leader": None if part.leader < 0 else part.leader,
            "replicas": list(part.replicas),
            "isr": list(part.isr),
            "logEndOffset": sample.ends.get(TopicPartition(name, part.partition)),
            "size": sample.sizes.get(TopicPartition(name, part.partition)),
        }
        for topic in sample.state.topics
        if topic.name == name
        for part in topic.partitions
    ]


def _brokers(sample: Sample) -> list[Row]:
    alive = {node.broker_id: node for node in sample.state.nodes.brokers}
    parts = [part for topic in sample.state.topics for part in topic.partitions]
    assigned = {broker for part in parts for broker in part.replicas}
    return [
        {
            "broker": broker,
            "address": f"{alive[broker].host}:{alive[broker].port}" if broker in alive else None,
            "leaders": sum(part.leader == broker for part in parts),
            "replicas": sum(broker in part.replicas for part in parts),
            "notInSync": sum(broker in part.replicas and broker not in part.isr for part in parts),
        }
        for broker in sorted({*alive, *assigned})
    ]


def _replicas(sample: Sample, broker: int) -> list[Row]:
    return [
        {
            "partition": f"{topic.name}-{part.partition}",
            "role": "leader" if part.leader == broker else "follower",
            "inSync": "yes" if broker in part.isr else "no",
            "leader": None if part.leader < 0 else part.leader,
            "size": sample.sizes.get(TopicPartition(topic.name, part.partition)),
        }
        for topic in sample.state.topics
        for part in topic.partitions
        if broker in part.replicas
    ]


def _lags(group: Group) -> list[Row]:
    return [
        {
            "partition": str(each.partition),
            "committed": None if each.committed is None else each.committed.offset,
            "logEndOffset": each.log_end_offset,
            "lag": each.lag,
        }
        for each in group.partitions
    ]
