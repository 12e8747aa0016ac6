"""Requests for reassignments, over lost connections and changes of the controller."""

from __future__ import annotations

from types import SimpleNamespace as Answer

import pytest

from klog.admin.requests.reassignments import RunningReassignment, alter_reassignments, list_reassignments
from klog.client.errors import RefusedError
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ConnectionLostError
from tests.client.fake_broker import A, B, FakeCluster, metadata

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def controlled_by(broker_id):
    answer = metadata()
    answer.controller_id = broker_id
    return answer


def accepted(*codes, error_code=0):
    parts = [
        Answer(partition_index=number, error_code=code, error_message=None)
        for number, code in enumerate(codes)
    ]
    return Answer(error_code=error_code, error_message=None, responses=[Answer(name="t", partitions=parts)])


def test_the_request_follows_the_controller() -> None:
    fake = FakeCluster(controlled_by(1), controlled_by(2), controlled_by(2))
    fake.connections[A].answers.append(accepted(ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER))
    fake.connections[B].answers += [ConnectionLostError("gone"), accepted(0, 0)]
    assert alter_reassignments(fake.client, {T0: [1, 2], T1: None}) == {T0: None, T1: None}
    first, second = fake.connections[B].sent
    assert first == second
    assert [part.replicas for part in first.topics[0].partitions] == [(1, 2), None]


def test_each_partition_has_its_own_outcome_and_one_that_is_not_answered_is_no_success() -> None:
    fake = FakeCluster(controlled_by(1))
    fake.connections[A].answers.append(accepted(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS))
    outcomes = alter_reassignments(fake.client, {T0: None, T1: None})
    codes = {partition: error.code for partition, error in outcomes.items() if error is not None}
    assert codes == {T0: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, T1: ErrorCode.UNKNOWN_SERVER_ERROR}


def test_a_refusal_of_all_is_an_error() -> None:
    fake = FakeCluster(controlled_by(1))
    refusal = Answer(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None, topics=[])
    fake.connections[A].answers.append(refusal)
    with pytest.raises(RefusedError, match="CLUSTER_AUTHORIZATION_FAILED"):
        list_reassignments(fake.client)


def test_the_target_is_what_is_not_removed() -> None:
    assert RunningReassignment(T0, (3, 1, 2), (3,), (2,)).target == (3, 1)
