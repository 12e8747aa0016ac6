"""Asks brokers whether they create a topic by themselves when a producer asks for it."""

from __future__ import annotations

from typing import Final

from klog.client.admin import Resource, ResourceType, describe_configs
from klog.client.asking import broker_ids
from klog.client.cluster import Cluster
from klog.formats.errors import KlogError

_CONFIG: Final = "auto.create.topics.enable"


def creates_topics(cluster: Cluster) -> bool | None:
    """What `auto.create.topics.enable` says; None if no broker tells this client."""
    try:
        brokers = [Resource(ResourceType.BROKER, str(each)) for each in broker_ids(cluster)[:1]]
        described = describe_configs(cluster, brokers, names=[_CONFIG])
    except KlogError:
        return None
    values = [each.value for _, configs in described for each in configs if each.name == _CONFIG]
    return values[0] == "true" if values else None
