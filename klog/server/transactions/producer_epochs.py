"""Reads which coordinator epochs leaders of partitions know, with DescribeProducers (KIP-664)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from klog.client.requests import by_partition, by_topic
from klog.coordinator.transactions.coordinator import TRANSACTION_STATE
from klog.drivers.fenced_markers import EpochsRequest, KnownEpochs
from klog.drivers.marker_queues import UNKNOWN, LeaderOf
from klog.formats.names import TopicPartition
from klog.metadata import paths
from klog.metadata.store import Check, MetadataStore
from klog.metadata.znodes import decode_partition_state, decode_valid
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import ProtocolError
from klog.protocol.messages import build, request_class
from klog.server.transactions.broker_threads import Connect

_VERSION: Final = 0

NewestEpochs = Callable[[Collection[int]], Mapping[int, int]]
"""The leader epochs of partitions of `__transaction_state`; see `newest_epochs`."""


def known_epochs(
    request: EpochsRequest, leader_of: LeaderOf, connect: Connect, newest: NewestEpochs
) -> KnownEpochs:
    """Ask the leaders of all partitions, and then the metadata. Raises KlogError if one does not answer."""
    wanted = request.producers
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition in sorted(wanted):
        by_leader.setdefault(leader_of(partition), []).append(partition)
    known: dict[tuple[TopicPartition, int], int] = {}
    for leader, partitions in by_leader.items():
        if leader == UNKNOWN:
            continue  # the markers look for it, too
        connection = connect(leader)
        try:
            answer = connection.send(request_of(partitions))
        finally:
            connection.close()
        known.update((key, epoch) for key, epoch in epochs_in(answer).items() if key[1] in wanted[key[0]])
    return KnownEpochs(known, newest(request.coordinator_partitions))


def request_of(partitions: Sequence[TopicPartition]) -> Entity:
    """DescribeProducers of these partitions."""
    return build(
        request_class(ApiKey.DESCRIBE_PRODUCERS, _VERSION),
        topics=by_topic(sorted(partitions), parts="partition_indexes"),
    )


def epochs_in(answer: Entity) -> dict[tuple[TopicPartition, int], int]:
    """The epochs in an answer, by partition and producer id. Raises ProtocolError if one may not be read."""
    found = {}
    for partition, part in by_partition(answer.topics):
        error = error_code(part.error_code)
        if error is ErrorCode.NONE:
            for each in part.active_producers:
                found[partition, int(each.producer_id)] = int(each.coordinator_epoch)
        elif not error.retriable:
            raise ProtocolError(f"the leader of {partition} answers DescribeProducers with {error.name}")
    return found


def newest_epochs(store: MetadataStore) -> NewestEpochs:
    """Reads leader epochs in the metadata. Raises StoreError, also if an epoch changes meanwhile.

    A server of ZooKeeper may lag. The check is a write, which the leader orders after all others.
    """

    def read(numbers: Collection[int]) -> Mapping[int, int]:
        keys = [TopicPartition(TRANSACTION_STATE, number) for number in numbers]
        nodes = store.get_many([paths.partition_state(key) for key in keys])
        states = decode_valid(keys, nodes, decode_partition_state)
        store.multi(
            [
                Check(paths.partition_state(key), state.leader_and_isr.partition_epoch)
                for key, state in states.items()
            ]
        )
        return {key.partition: state.leader_and_isr.leader_epoch for key, state in states.items()}

    return read
