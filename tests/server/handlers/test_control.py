"""What a controller and other brokers ask is obeyed or refused as Kafka's brokers do."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from klog.formats.names import TopicPartition, decode_uuid
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.interbroker.stop_replica import StopReplicaPartitionState
from klog.protocol.interbroker.update_metadata import LEADER_DURING_DELETE
from klog.protocol.messages import encode_request
from tests.control_requests import (
    leader_and_isr,
    leader_and_isr_state,
    stop_replica,
    update_metadata,
    update_metadata_state,
)
from tests.server.handlers.admin_parts import ME, AdminCluster, registration
from tests.server.handlers.parts import FakeRequest, answer_of, part_of

WHERE = TopicPartition("t", 0)
TOPIC_ID = "t0p1cAAAAAAAAAAAAAAAAA"


def sender(epoch, broker_epoch):
    return {"controller_id": 2, "controller_epoch": epoch, "broker_epoch": broker_epoch}


def lead(epoch, broker_epoch):
    state = leader_and_isr_state(0, ME, (ME,), controller_epoch=epoch, is_new=True)
    return leader_and_isr({WHERE: state}, {"t": TOPIC_ID}, [registration(ME)], **sender(epoch, broker_epoch))


def stop(epoch, broker_epoch):
    state = StopReplicaPartitionState(partition_index=0, leader_epoch=0, delete_partition=True)
    return stop_replica({WHERE: state}, **sender(epoch, broker_epoch))


def update(epoch, broker_epoch, *, leader=ME):
    state = update_metadata_state(0, leader, (ME,), controller_epoch=epoch)
    return update_metadata({WHERE: state}, {"t": TOPIC_ID}, [registration(ME)], **sender(epoch, broker_epoch))


def tell(cluster, request):
    sent = FakeRequest(request.__api_key__, request.__version__, memoryview(encode_request(request)))
    control = cluster.control
    {4: control.leader_and_isr, 5: control.stop_replica, 6: control.update_metadata}[request.__api_key__](
        sent
    )
    return answer_of(sent)


@pytest.mark.parametrize("make", [lead, stop, update])
def test_a_request_for_an_earlier_registration_is_refused(make) -> None:
    cluster = AdminCluster(elected=False)
    answer = tell(cluster, make(1, cluster.epochs[ME] - 1))
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert cluster.replicas.led == {}
    assert cluster.cache.snapshot.topics == {}


@pytest.mark.parametrize("make", [lead, stop, update])
@pytest.mark.parametrize("known", [True, False])
def test_a_request_of_this_registration_or_of_none_is_obeyed(make, known) -> None:
    cluster = AdminCluster(elected=False)
    assert tell(cluster, make(1, cluster.epochs[ME] if known else -1)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("make", [lead, stop, update])
def test_a_controller_that_has_been_replaced_is_refused(make) -> None:
    cluster = AdminCluster(elected=False)
    tell(cluster, update(5, -1))
    before = cluster.cache.snapshot
    assert tell(cluster, make(4, -1)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert cluster.cache.snapshot is before


def test_partitions_are_answered_one_by_one() -> None:
    cluster = AdminCluster(elected=False)
    (topic,) = tell(cluster, lead(1, -1)).topics
    assert topic.topic_id == UUID(bytes=decode_uuid(TOPIC_ID))
    assert [(each.partition_index, each.error_code) for each in topic.partition_errors] == [(0, 0)]
    assert cluster.replicas.led == {WHERE: ME}
    (stopped,) = tell(cluster, stop(1, -1)).partition_errors
    assert (stopped.topic_name, stopped.partition_index, stopped.error_code) == ("t", 0, ErrorCode.NONE)
    assert cluster.replicas.led == {}


def test_what_the_controller_tells_is_what_clients_are_told() -> None:
    cluster = AdminCluster(elected=False)
    tell(cluster, update(1, -1))
    assert cluster.cache.snapshot.topics["t"][0].leader == ME
    gone = []
    cluster.control = replace(cluster.control, partitions_gone=gone.extend)
    tell(cluster, update(1, -1, leader=LEADER_DURING_DELETE))
    assert (cluster.cache.snapshot.topics, gone) == ({}, [WHERE])


def brokers_only(epoch):
    return update_metadata({}, {}, [registration(ME)], **sender(epoch, -1))


def test_each_update_that_is_obeyed_is_passed_on_with_what_was_known_before() -> None:
    cluster = AdminCluster(elected=False)
    updates = update(2, -1), brokers_only(2), brokers_only(1)
    for each in updates:
        tell(cluster, each)
    obeyed = [(each.controller_epoch, set(known)) for each, known in cluster.updates]
    assert obeyed == [(2, set()), (2, {"t"})]


def shut_down(cluster, broker_id, epoch):
    return cluster.ask(ApiKey.CONTROLLED_SHUTDOWN, 3, broker_id=broker_id, broker_epoch=epoch)


def test_a_broker_that_stops_keeps_only_what_no_other_can_lead(cluster) -> None:
    cluster.create("t", (2, 3), (2, 1))
    cluster.join_isr("t", 1, (2,))
    answer = shut_down(cluster, 2, cluster.epochs[2])
    assert answer.error_code == ErrorCode.NONE
    assert [(each.topic_name, each.partition_index) for each in answer.remaining_partitions] == [("t", 1)]
    assert cluster.cache.snapshot.topics["t"][0].leader == 3


def test_an_earlier_registration_cannot_stop_its_broker(cluster) -> None:
    assert shut_down(cluster, 2, cluster.epochs[2] - 1).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_broker_that_is_not_controller_says_that_the_controller_has_moved() -> None:
    cluster = AdminCluster(elected=False)
    assert shut_down(cluster, 2, cluster.epochs[2]).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


def next_ids(cluster, broker_id, epoch):
    answer = cluster.ask(ApiKey.ALLOCATE_PRODUCER_IDS, 0, broker_id=broker_id, broker_epoch=epoch)
    return answer.error_code, answer.producer_id_start, answer.producer_id_len


def test_brokers_are_given_blocks_of_producer_ids_one_after_the_other(cluster) -> None:
    assert next_ids(cluster, 2, cluster.epochs[2]) == (ErrorCode.NONE, 0, 1000)
    assert next_ids(cluster, 3, cluster.epochs[3]) == (ErrorCode.NONE, 1000, 1000)
    assert next_ids(cluster, 3, cluster.epochs[3] - 1) == (ErrorCode.STALE_BROKER_EPOCH, 0, 0)
    assert next_ids(cluster, 99, 1) == (ErrorCode.BROKER_ID_NOT_REGISTERED, 0, 0)
    other = AdminCluster(elected=False)
    assert next_ids(other, 2, other.epochs[2]) == (ErrorCode.NOT_CONTROLLER, 0, 0)


def alter(cluster, version, topic_id, isr, *, leader=2, epoch=None, leader_epoch=0, recovery=0):
    api = ApiKey.ALTER_PARTITION
    members = {"new_isr": isr}
    if version >= 3:
        states = [part_of(api, version, "BrokerState", broker_id=each, broker_epoch=-1) for each in isr]
        members = {"new_isr_with_epochs": tuple(states)}
    partition = part_of(
        api,
        version,
        "PartitionData",
        partition_index=0,
        leader_epoch=leader_epoch,
        leader_recovery_state=recovery,
        partition_epoch=0,
        **members,
    )
    topic = part_of(api, version, "TopicData", topic_id=topic_id, partitions=(partition,))
    return cluster.ask(
        api,
        version,
        broker_id=leader,
        broker_epoch=cluster.epochs[leader] if epoch is None else epoch,
        topics=(topic,),
    )


@pytest.mark.parametrize("version", [2, 3])
def test_a_leader_has_its_in_sync_replicas_changed(cluster, version) -> None:
    topic_id = UUID(bytes=decode_uuid(cluster.create("t", (2, 3))))
    answer = alter(cluster, version, topic_id, (2,))
    (topic,) = answer.topics
    (partition,) = topic.partitions
    assert (answer.error_code, topic.topic_id, partition.error_code) == (0, topic_id, 0)
    assert (partition.leader_id, partition.isr, partition.partition_epoch) == (2, (2,), 1)
    assert cluster.cache.snapshot.topics["t"][0].isr == (2,)


def test_a_leader_is_heard_though_this_broker_s_own_metadata_does_not_know_the_topic_yet(cluster) -> None:
    # As after an election: other brokers can be quicker than what the controller tells its own.
    topic_id = cluster.create("t", (2, 3))
    known = cluster.cache.snapshot.topics["t"][0]
    forgotten = replace(known, leader=LEADER_DURING_DELETE)
    cluster.cache.update(update_metadata({WHERE: forgotten}, {"t": topic_id}, [registration(ME)]))
    assert "t" not in cluster.cache.snapshot.topics
    (topic,) = alter(cluster, 3, UUID(bytes=decode_uuid(topic_id)), (2,)).topics
    assert [each.error_code for each in topic.partitions] == [ErrorCode.NONE]


def test_refusals_stand_at_the_partition_they_concern(cluster) -> None:
    topic_id, unknown = UUID(bytes=decode_uuid(cluster.create("t", (2, 3)))), uuid4()
    for wanted, changes, error in (
        (unknown, {}, ErrorCode.UNKNOWN_TOPIC_ID),
        (topic_id, {"leader_epoch": 7}, ErrorCode.NOT_CONTROLLER),
        (topic_id, {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        (topic_id, {"recovery": 9}, ErrorCode.INVALID_REQUEST),
    ):
        (topic,) = alter(cluster, 3, wanted, (2,), **changes).topics
        assert (topic.topic_id, [each.error_code for each in topic.partitions]) == (wanted, [error])


def test_an_earlier_registration_changes_nothing(cluster) -> None:
    topic_id = UUID(bytes=decode_uuid(cluster.create("t", (2, 3))))
    assert alter(cluster, 3, topic_id, (2,), epoch=1).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_only_the_controller_changes_in_sync_replicas() -> None:
    cluster = AdminCluster(elected=False)
    assert alter(cluster, 3, uuid4(), (2,)).error_code == ErrorCode.NOT_CONTROLLER
