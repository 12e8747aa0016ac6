"""Plans between the log directories of brokers."""

from __future__ import annotations

import pytest

from klog.admin.reassign.dirs import plan_dirs
from klog.admin.reassign.values import PartitionAssignment
from klog.client.errors import ClientError
from klog.client.log_dirs import LogDir, ReplicaInLogDir
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode


def directory(broker, path, sizes, *, error=ErrorCode.NONE, future=()):
    replicas = [
        ReplicaInLogDir(TopicPartition("t", number), size, 0, number in future)
        for number, size in sizes.items()
    ]
    return LogDir(broker, path, error, None, None, tuple(replicas))


def on(*brokers, count=10):
    return {TopicPartition("t", number): brokers for number in range(count)}


def test_a_broker_with_an_empty_directory_moves_half_of_its_bytes():
    dirs = [directory(1, "/a", {0: 100, 1: 100, 2: 100, 3: 100}), directory(1, "/b", {})]
    found = plan_dirs(dirs, on(1), 0.01)
    assert (found.moved_replicas, found.moved_bytes, found.least_bytes) == (2, 200, 198)
    assert [(each.log_dir, each.found.bytes_after) for each in found.dirs] == [("/a", 200), ("/b", 200)]
    assert all(each.log_dirs == ("/b",) for each in found.changes)
    assert all(each.log_dirs == ("/a",) for each in found.rollback)


def test_replicas_that_stay_have_no_directory_in_the_plan():
    dirs = [
        directory(1, "/a", {0: 100, 1: 100}),
        directory(1, "/b", {}),
        directory(2, "/a", {0: 100}),
        directory(2, "/b", {1: 100}),
    ]
    (change,) = plan_dirs(dirs, on(2, 1), 0.01).changes
    assert change == PartitionAssignment(change.partition, (2, 1), ("any", "/b"))


def test_the_result_of_a_plan_needs_no_plan():
    sizes = {number: 17 * number % 50 for number in range(10)}
    before = [directory(1, "/a", sizes), directory(1, "/b", {}), directory(1, "/c", {})]
    found = plan_dirs(before, on(1), 0.01)
    moved = {each.partition.partition: each.log_dirs[0] for each in found.changes}
    after = [
        directory(1, path, {number: sizes[number] for number in sizes if moved.get(number, "/a") == path})
        for path in ("/a", "/b", "/c")
    ]
    assert plan_dirs(after, on(1), 0.01).changes == ()


def test_offline_directories_and_logs_that_are_no_replicas_are_left_out():
    dirs = [
        directory(1, "/a", {0: 100, 99: 900}),
        directory(1, "/b", {}, error=ErrorCode.KAFKA_STORAGE_ERROR),
        directory(1, "/c", {1: 100}),
    ]
    found = plan_dirs(dirs, on(1), 0.01)
    assert found.changes == ()
    assert [each.log_dir for each in found.dirs] == ["/a", "/c"]


def test_a_broker_that_moves_replicas_already_is_refused():
    dirs = [directory(1, "/a", {0: 100}), directory(1, "/b", {0: 50}, future={0})]
    with pytest.raises(ClientError, match="broker 1 is moving t-0 to /b"):
        plan_dirs(dirs, on(1), 0.01)
