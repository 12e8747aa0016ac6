"""Compares two clusters' metadata, item by item: topics, partitions, configs, ACLs and so on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from klog.cluster_metadata import json_form
from klog.cluster_metadata.json_codecs import Value
from klog.cluster_metadata.model import Cluster, Topic
from klog.security.quotas.entities import Default, QuotaEntity

KINDS: Final = (
    "cluster",
    "feature",
    "broker",
    "controller",
    "voter",
    "topic",
    "partition",
    "deletion",
    "reassignment",
    "config",
    "quota",
    "credential",
    "acl",
    "token",
)
HIDDEN: Final = "(hidden)"
_SINGLE: Final = ("clusterId", "controllerEpoch", "nextProducerId", "generatedBrokerIds", "migrationState")
_LISTS: Final = {
    "brokers": ("broker", ("id",)),
    "controllers": ("controller", ("id",)),
    "voters": ("voter", ("id",)),
    "requestedReassignments": ("reassignment", ("topic", "partition")),
    "scram": ("credential", ("user", "mechanism")),
    "delegationTokens": ("token", ("tokenId",)),
}
"""The lists of objects in the JSON form: the kind of an item, and the members that name it."""


class Item(NamedTuple):
    """One value in a cluster: `partition`, `orders-0`, `leader`."""

    kind: str
    name: str
    member: str


class Difference(NamedTuple):
    """What differs; None stands for what is not there. Secrets are hidden."""

    item: Item
    a: object
    b: object


def entity_name(entity: QuotaEntity) -> str:
    """An entity with quotas for people: `user alice, client-id <default>`."""
    parts = zip(("user", "client-id", "ip"), entity, strict=True)
    return ", ".join(
        f"{kind} {part.value if isinstance(part, Default) else part}"
        for kind, part in parts
        if part is not None
    )


def differences(a: Cluster, b: Cluster) -> list[Difference]:
    """What differs between two clusters. A secret that one of them lacks is no difference."""
    found = _rest_differences(replace(a, topics={}), replace(b, topics={}))
    for name in a.topics.keys() | b.topics.keys():
        left, right = a.topics.get(name), b.topics.get(name)
        if left != right:
            found += _differing(dict(_topic_items(name, left)), dict(_topic_items(name, right)), frozenset())
    return sorted(found, key=lambda each: _order(each.item))


def _rest_differences(a: Cluster, b: Cluster) -> list[Difference]:
    """What differs beside topics."""
    hidden = {
        item for item, value in (*_items(a.without_secrets()), *_items(b.without_secrets())) if value is None
    }
    return _differing(dict(_items(a)), dict(_items(b)), hidden)


def _differing(
    of_a: Mapping[Item, Value], of_b: Mapping[Item, Value], hidden: Collection[Item]
) -> list[Difference]:
    found = []
    for item in of_a.keys() | of_b.keys():
        left, right = of_a.get(item), of_b.get(item)
        if left == right or (item in hidden and item in of_a and item in of_b and None in (left, right)):
            continue
        if item in hidden:
            left, right = (HIDDEN if item in each else None for each in (of_a, of_b))
        found.append(Difference(item, left, right))
    return found


def _order(item: Item) -> tuple[int, str, str]:
    return KINDS.index(item.kind), item.name, item.member


def _items(cluster: Cluster) -> Iterator[tuple[Item, Value]]:
    content = json_form.to_json(cluster, secrets=True)
    for name in _SINGLE:
        if name in content:
            yield Item("cluster", "", name), content[name]
    for name, level in content.get("features", {}).items():
        yield Item("feature", name, ""), level
    for key, (kind, names) in _LISTS.items():
        for each in content.get(key, ()):
            yield from _members(kind, "-".join(str(each[name]) for name in names), each, names)
    for name in content.get("deletions", ()):
        yield Item("deletion", name, ""), "requested"
    for each in content.get("configs", ()):
        name = f"{each['type'].lower()} {each['name'] or '<default>'}"
        yield from ((Item("config", name, key), value) for key, value in each["configs"].items())
    for entity, limits in cluster.quotas.items():
        yield from ((Item("quota", entity_name(entity), key), value) for key, value in limits.items())
    for each in content.get("acls", ()):
        yield Item("acl", " ".join(map(str, each.values())), ""), "yes"


def _topic_items(name: str, topic: Topic | None) -> Iterator[tuple[Item, Value]]:
    if topic is None:
        return
    content = json_form.topic_to_json(topic)
    yield Item("topic", name, "topicId"), content.get("topicId", "none")
    for each in content["partitions"]:
        yield from _members("partition", f"{name}-{each['partition']}", each, ("partition",))


def _members(
    kind: str, name: str, found: Mapping[str, Value], names: tuple[str, ...]
) -> Iterator[tuple[Item, Value]]:
    for member, value in found.items():
        if member not in names:
            yield Item(kind, name, member), value
