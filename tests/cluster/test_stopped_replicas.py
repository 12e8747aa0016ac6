"""What a broker answers of a replica that the controller has stopped without deleting it, klog as Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.client.fetcher import fetch, partitions_of, topics_of
from klog.formats.names import TopicPartition
from klog.metadata.control_requests import ControlRequest, control_response
from klog.protocol.channel import Channel
from klog.protocol.error_codes import ErrorCode
from klog.protocol.fetch_request import FetchPartition, FetchRequest
from klog.protocol.interbroker.stop_replica import EPOCH_DURING_DELETE, StopReplicaPartitionState
from tests.cluster.world import Cluster, cluster, kinds
from tests.control_requests import leader_and_isr, leader_and_isr_state, stop_replica
from tests.peers.kafka import KafkaPeer

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

BOTH = (0, 1)
NONE, STALE, FENCED = ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH


class Replica:
    """A replica at one broker, which is told of its role as by the controller."""

    def __init__(self, world: Cluster, broker_id: int, key: TopicPartition, leader: int) -> None:
        self._address = world.members[broker_id].address.split(":")
        self._key = key
        self._leader = leader
        self._ids = {key.topic: world.tree.topic_id(key.topic)}
        self._controller = {"controller_epoch": world.tree.controller_epoch(), "broker_epoch": -1}

    def _channel(self) -> Channel:
        return Channel(self._address[0], int(self._address[1]), timeout_ms=60_000)

    def _send(self, request: ControlRequest) -> ErrorCode:
        with self._channel() as channel:
            answer = control_response(request, channel.send(request))
        return answer.error or answer.partitions[self._key]

    def tell(self, epoch: int) -> ErrorCode:
        state = leader_and_isr_state(self._key.partition, self._leader, BOTH, leader_epoch=epoch)
        return self._send(leader_and_isr({self._key: state}, self._ids, **self._controller))

    def stop(self, epoch: int, *, delete: bool = False) -> ErrorCode:
        state = StopReplicaPartitionState(
            partition_index=self._key.partition, leader_epoch=epoch, delete_partition=delete
        )
        return self._send(stop_replica({self._key: state}, **self._controller))

    def fetch(self, epoch: int) -> ErrorCode:
        """A consumer's fetch."""
        wanted = FetchPartition(self._key.partition, epoch, 0, -1, 0, 1 << 20)
        request = FetchRequest(0, 1, 1 << 20, 0, topics_of([(self._key.topic, wanted)]))
        with self._channel() as channel:
            ((_, found),) = partitions_of(fetch(channel, request, 60_000))
        return ErrorCode(found.error_code)


def answers(replica: Replica) -> list[ErrorCode]:
    return [
        *(replica.tell(epoch) for epoch in (5, 5, 4)),
        *(replica.stop(epoch) for epoch in (4, 5)),
        *(replica.fetch(epoch) for epoch in (4, 5, 6)),
        *(replica.tell(epoch) for epoch in (4, 5)),
        *(replica.stop(epoch) for epoch in (4, 5)),
        *(replica.tell(epoch) for epoch in (6, 6)),
        replica.fetch(6),
        replica.stop(EPOCH_DURING_DELETE, delete=True),
        replica.fetch(6),
    ]


def test_a_stopped_replica_answers_as_kafka_s(tmp_path: Path, kafka3: KafkaPeer) -> None:
    with cluster(tmp_path, kafka3, kinds("klog,kafka")) as world:
        world.start()
        world.create({"t": 2}, assignment=[[0, 1], [1, 0]], min_insync_replicas=1)
        world.wait_for_full_isr()
        found = {
            (broker_id, is_leader): answers(
                Replica(world, broker_id, TopicPartition("t", number), broker_id if is_leader else other)
            )
            for broker_id, other in ((0, 1), (1, 0))
            for number, is_leader in ((broker_id, True), (other, False))
        }
        assert found[0, True] == found[1, True]
        assert found[0, False] == found[1, False]
        assert found[0, True][:5] == [NONE, STALE, STALE, FENCED, NONE]
