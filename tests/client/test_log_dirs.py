"""Log directories as brokers of each version describe them, and brokers that do not answer."""

from __future__ import annotations

from types import SimpleNamespace as Answer

from klog.client.errors import RefusedError
from klog.client.log_dirs import Replica, ReplicaInLogDir, alter_replica_log_dirs, describe_log_dirs
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from tests.client.fake_broker import A, B, FakeCluster, metadata

T0 = TopicPartition("t", 0)


def described(*dirs, error_code=0):
    return Answer(error_code=error_code, results=list(dirs))


def log_dir(path, error_code=0, **volume):
    part = Answer(partition_index=0, partition_size=7, offset_lag=3, is_future_key=True)
    return Answer(
        error_code=error_code,
        log_dir=path,
        topics=[] if error_code else [Answer(name="t", partitions=[part])],
        **volume,
    )


def test_a_broker_that_cannot_be_reached_does_not_hide_the_others() -> None:
    fake = FakeCluster(metadata())
    fake.connections[A].answers.append(described(log_dir("/d", total_bytes=100, usable_bytes=40)))
    fake.connections[B].down = True
    found = describe_log_dirs(fake.client)
    (only,) = found.dirs
    assert (only.broker_id, only.path, only.total_bytes, only.usable_bytes) == (1, "/d", 100, 40)
    assert only.replicas == (ReplicaInLogDir(T0, 7, 3, is_future=True),)
    assert list(found.failures) == [2]
    assert "what broker 2 advertises" in str(found.failures[2])


def test_an_offline_directory_and_unknown_bytes_are_told() -> None:
    fake = FakeCluster(metadata())
    offline = log_dir("/bad", ErrorCode.KAFKA_STORAGE_ERROR, total_bytes=-1, usable_bytes=-1)
    fake.connections[A].answers.append(described(offline))
    (only,) = describe_log_dirs(fake.client, [1]).dirs
    assert (only.error, only.total_bytes) == (ErrorCode.KAFKA_STORAGE_ERROR, None)


def test_a_refusal_is_a_failure_also_if_the_broker_only_answers_nothing() -> None:
    fake = FakeCluster(metadata())
    fake.connections[A].answers.append(described(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    fake.connections[B].answers.append(Answer(results=[]))  # before version 3
    failures = describe_log_dirs(fake.client).failures
    for error in failures.values():
        assert isinstance(error, RefusedError)
        assert error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert list(failures) == [1, 2]


def test_moves_are_sent_to_each_broker_and_answered_for_each_replica() -> None:
    fake = FakeCluster(metadata())
    part = Answer(partition_index=0, error_code=ErrorCode.REPLICA_NOT_AVAILABLE)
    fake.connections[A].answers.append(Answer(results=[Answer(topic_name="t", partitions=[part])]))
    fake.connections[B].down = True
    outcomes = alter_replica_log_dirs(fake.client, {Replica(T0, 1): "/a", Replica(T0, 2): "/b"})
    (sent,) = fake.connections[A].sent
    (directory,) = sent.dirs
    assert (directory.path, directory.topics[0].partitions) == ("/a", (0,))
    assert "t-0-1: REPLICA_NOT_AVAILABLE" in str(outcomes[Replica(T0, 1)])
    assert "cannot connect" in str(outcomes[Replica(T0, 2)])
