"""Says when a broker that starts knows enough to serve its clients.

In Kafka a broker in ZooKeeper mode serves from the moment it listens. Until its controller has sent the
metadata it tells clients that their topics are unknown, which a client without retries takes for the truth.
klog lets clients wait meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set
from typing import Final

from klog.formats.constants import NO_LEADER
from klog.formats.names import TopicPartition
from klog.metadata.cache import ClusterSnapshot, MetadataCache
from klog.metadata.errors import WaitCancelledError
from klog.metadata.store import MetadataStore
from klog.metadata.topics import topic_names, topics_to_delete
from klog.protocol.apis import ApiKey
from klog.protocol.interbroker.update_metadata import UpdateMetadataPartitionState
from klog.replication.partition import Replicas

_log = logging.getLogger(__name__)

# The controller may be another broker, and busy or gone.
_TIMEOUT_S: Final = 10
_LOOK_EVERY_S: Final = 0.5
_LOOKS: Final = int(_TIMEOUT_S / _LOOK_EVERY_S)
# What the controller and other brokers send, and the question which APIs there are.
SERVED_BEFORE = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    }
)


def is_complete(
    snapshot: ClusterSnapshot, broker_id: int, topics: Set[str], leads: Callable[[TopicPartition], bool]
) -> bool:
    """Whether a snapshot has these topics, and the broker leads what it should lead.

    `leads` says whether the broker leads a partition by now. A partition without a leader is waited for if
    the broker can become its leader, that is, if it is in the ISR. A replica in a failed log directory is not
    waited for.
    """

    def settled(topic: str, number: int, state: UpdateMetadataPartitionState) -> bool:
        if broker_id in state.offline_replicas:
            return True
        if state.leader == broker_id:
            return leads(TopicPartition(topic, number))
        return state.leader != NO_LEADER or broker_id not in state.isr

    return snapshot.topics.keys() >= topics and all(
        settled(topic, number, state)
        for topic, partitions in snapshot.topics.items()
        for number, state in partitions.items()
    )


def await_first_metadata(
    cache: MetadataCache,
    store: MetadataStore,
    replicas: Replicas,
    broker_id: int,
    is_stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Waits until the controller has sent the metadata of all topics, 10 s at most.

    Raises `StoreError`; `WaitCancelledError` if `is_stopping` becomes true meanwhile.
    """
    topics = set(topic_names(store)).difference(topics_to_delete(store))

    def leads(partition: TopicPartition) -> bool:
        found = replicas.partitions.get(partition)
        return found is not None and found.state.is_leader

    for _ in range(_LOOKS):
        if cache.wait_for(lambda snapshot: is_complete(snapshot, broker_id, topics, leads), _LOOK_EVERY_S):
            return
        if is_stopping():
            raise WaitCancelledError("stopped before the controller had sent the metadata of all topics")
    _log.warning(
        "the controller has not sent the metadata of all topics in %d s: clients are served without",
        _TIMEOUT_S,
    )
