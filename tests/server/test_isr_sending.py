"""The ISR of a leader changes as the controller answers, whatever goes wrong on the way."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from uuid import UUID

import pytest

from klog.client.connection import ReconnectingConnection
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ConnectionLostError
from klog.protocol.messages import (
    build,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    response_class,
)
from klog.replication.alter_partition import IsrAccepted, IsrProposal
from klog.server.peers.controller_channel import ToController
from klog.server.peers.isr_sending import (
    IsrSending,
    alter_partition_answers,
    alter_partition_request,
    via_controller,
)
from klog.storage.log.scheduler import monotonic_ms
from tests.server.handlers.parts import BROKER, MAX_LAG_MS, OTHER_BROKER, TOPIC, TOPIC_UUID, Broker
from tests.server.transactions.fake_brokers import FakeBroker, FakeConnection
from tests.waiting import eventually

BOTH = (BROKER, OTHER_BROKER)
PARTITION = TopicPartition(TOPIC, 0)
KEY = ApiKey.ALTER_PARTITION
BROKER_EPOCH = 77


def response(
    version: int, request: Entity | None, error=ErrorCode.NONE, partition_error=ErrorCode.NONE
) -> Entity:
    """The answer of a controller that writes every proposal."""
    kind = response_class(KEY, version)
    messages = import_module(kind.__module__)

    def partition(each: Entity) -> Entity:
        isr = each.new_isr if version < 3 else tuple(member.broker_id for member in each.new_isr_with_epochs)
        return build(
            messages.PartitionData,
            partition_index=each.partition_index,
            error_code=partition_error,
            leader_id=BROKER,
            leader_epoch=each.leader_epoch,
            isr=isr,
            leader_recovery_state=0,
            partition_epoch=each.partition_epoch + 1,
        )

    topics = tuple(
        build(messages.TopicData, topic_id=topic.topic_id, partitions=tuple(map(partition, topic.partitions)))
        for topic in (() if request is None else request.topics)
    )
    return build(kind, throttle_time=timedelta(), error_code=error, topics=topics)


class Leader:
    """A broker with a controller to ask; its partition has a follower that may join."""

    def __init__(self, path: Path, version: int = 3) -> None:
        self.broker = Broker(path)
        self.controller = FakeBroker(lambda request: response(version, request), version)
        self.channel = ToController(
            lambda: self.broker.metadata.snapshot,
            lambda _: ReconnectingConnection(lambda: FakeConnection(self.controller)),
            monotonic_ms,
        )
        self.channel.start()
        send = via_controller(
            self.channel,
            BROKER,
            lambda: BROKER_EPOCH,
            lambda key: self.broker.replicas.partitions[key].topic_id,
        )
        self.sending = IsrSending(self.broker.replicas, send, monotonic_ms)
        self.broker.isr_proposed = self.sending.driver.propose

    def join(self) -> None:
        """Lead a partition, and let the other broker fetch to its end."""
        self.partition = self.broker.lead(replicas=BOTH, isr=(BROKER,))
        self.broker.append(2)
        self.broker.follow(2)

    def stop(self) -> None:
        self.sending.stop()
        self.channel.stop()


@pytest.fixture(params=[2, 3])
def leader(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Leader]:
    leader = Leader(tmp_path, request.param)
    yield leader
    leader.stop()


def is_in_sync(leader: Leader) -> bool:
    return leader.partition.state.isr.committed == BOTH


def test_a_follower_that_has_caught_up_joins_when_the_controller_has_written_it(leader: Leader) -> None:
    leader.join()
    eventually(lambda: is_in_sync(leader))
    (sent,) = leader.controller.requests
    assert (sent.broker_id, sent.broker_epoch) == (BROKER, BROKER_EPOCH)
    eventually(lambda: leader.sending.driver.counts.expands == 1)  # counted after the change
    assert leader.partition.state.partition_epoch == 1


def test_an_error_for_the_whole_request_is_tried_again_until_it_is_over(leader: Leader) -> None:
    version = leader.controller.version
    leader.controller.answer = lambda _: response(version, None, ErrorCode.STALE_BROKER_EPOCH)
    leader.join()
    eventually(lambda: len(leader.controller.requests) > 3)
    assert leader.partition.state.isr.pending == BOTH
    leader.controller.answer = lambda request: response(version, request)
    eventually(lambda: is_in_sync(leader))


def test_a_broken_connection_and_a_lost_controller_are_waited_for(leader: Leader) -> None:
    version = leader.controller.version

    def breaks(_: Entity) -> Entity:
        raise ConnectionLostError("gone")

    leader.controller.answer = breaks
    leader.join()
    eventually(lambda: len(leader.controller.requests) > 1)
    leader.controller.answer = lambda request: response(version, request)
    eventually(lambda: is_in_sync(leader))


def test_a_proposal_that_the_controller_refuses_counts_as_a_failure(leader: Leader) -> None:
    version = leader.controller.version
    leader.controller.answer = lambda request: response(
        version, request, partition_error=ErrorCode.INELIGIBLE_REPLICA
    )
    leader.join()
    eventually(lambda: leader.sending.driver.counts.failures)
    assert leader.partition.state.isr.pending is None
    leader.controller.answer = lambda request: response(version, request)
    leader.broker.follow(2)
    eventually(lambda: is_in_sync(leader))


def test_a_follower_that_lags_is_removed_again_and_again(leader: Leader) -> None:
    # No scheduler takes part: a flush that hangs on its thread holds up no check.
    leader.sending.check_every(10)
    leader.broker.clock.now_ms = -2 * MAX_LAG_MS  # the follower has not fetched for long
    leader.partition = leader.broker.lead(replicas=BOTH, isr=BOTH)
    for shrinks in (1, 2):
        leader.broker.append(1)
        eventually(lambda wanted=shrinks: leader.sending.driver.counts.shrinks == wanted)
        assert leader.partition.state.isr.committed == (BROKER,)
        end = leader.partition.log.log_end_offset
        leader.broker.follow(end)
        eventually(lambda: is_in_sync(leader))


def test_a_partition_without_a_topic_id_is_not_sent(leader: Leader) -> None:
    leader.partition = leader.broker.lead(replicas=BOTH, isr=(BROKER,), topic_id=None)
    leader.broker.follow(0)
    eventually(lambda: leader.sending.driver.counts.failures)
    assert leader.partition.state.isr.pending == BOTH


@pytest.mark.parametrize("version", [2, 3])
def test_messages_carry_proposals_there_and_answers_back(version: int) -> None:
    ids = {TOPIC: TOPIC_UUID, "b": UUID(int=5)}
    proposals = {
        PARTITION: IsrProposal(4, 7, (1, 2)),
        TopicPartition(TOPIC, 3): IsrProposal(0, 0, (1,)),
        TopicPartition("b", 0): IsrProposal(1, 2, (3, 1)),
    }
    sent = alter_partition_request(version, 1, 9, proposals, ids)
    sent = decode_request(KEY, version, memoryview(encode_request(sent)))
    answer = decode_response(KEY, version, memoryview(encode_response(response(version, sent))))
    assert alter_partition_answers(answer, ids) == {
        key: IsrAccepted(each.leader_epoch, each.partition_epoch + 1, each.isr)
        for key, each in proposals.items()
    }
    refused = response(version, sent, partition_error=ErrorCode.FENCED_LEADER_EPOCH)
    assert set(alter_partition_answers(refused, ids).values()) == {ErrorCode.FENCED_LEADER_EPOCH}
