"""Changes a topic: its configs and its number of partitions."""

from __future__ import annotations

from dataclasses import dataclass

from klog.admin import topics
from klog.admin.configs import Change, ConfigEntity, EntityType, alter
from klog.client.cluster import Cluster
from klog.client.errors import RefusedError
from klog.client.retry import Retry
from klog.formats.errors import KlogError
from klog.protocol.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class Alteration:
    """Configs to set or to return to their defaults, and how many partitions a topic is to have."""

    changes: tuple[Change, ...]
    partitions: int | None


def alter_topic(
    cluster: Cluster, topic: topics.Topic, wanted: Alteration, retry: Retry, *, validate_only: bool
) -> KlogError | None:
    """Change a topic, or only check whether that is allowed; why it is refused, None if it is not.

    A topic that has so many partitions keeps them. Raises `ChannelError`.
    """
    entity = ConfigEntity(EntityType.TOPICS, topic.name)
    if wanted.changes:
        try:
            alter(cluster, entity, wanted.changes, validate_only=validate_only)
        except RefusedError as refused:
            return refused
    if wanted.partitions is None or wanted.partitions == len(topic.partitions):
        return None
    (result,) = topics.add_partitions(
        cluster, [topic.name], wanted.partitions, None, retry, validate_only=validate_only
    )
    if result.error is ErrorCode.NONE:
        return None
    return RefusedError(result.topic, result.error, message=result.message)
