"""What has to be moved, in which batches, and how far it is."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from klog.admin.reassign.movement import movement_of
from klog.admin.reassign.moves import Move, batches_of, moves_of
from klog.admin.reassign.progress import Copy, CopyKey, copies_of, with_throttle
from klog.admin.reassign.throttles import FOLLOWER_RATE, LOG_DIR_RATE, BrokerRate
from klog.admin.reassign.values import PartitionAssignment
from klog.admin.requests.reassignments import RunningReassignment
from klog.client.log_dirs import LogDir, Replica, ReplicaInLogDir
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def log_dir(broker_id: int, path: str, *replicas: tuple[TopicPartition, int, bool]) -> LogDir:
    found = tuple(ReplicaInLogDir(partition, size, 5, future) for partition, size, future in replicas)
    return LogDir(broker_id, path, ErrorCode.NONE, None, None, found)


DIRS = [
    log_dir(0, "/a", (T0, 100, False)),
    log_dir(1, "/a", (T0, 90, False)),
    log_dir(1, "/b", (T0, 30, True)),
]


def move(*replicas: int, log_dirs: tuple[str, ...] = (), running=()) -> Move:
    (found,) = moves_of([PartitionAssignment(T0, replicas, log_dirs)], {T0: (0, 1)}, running, DIRS)
    return found


def test_what_is_as_wanted_is_done() -> None:
    assert move(0, 1).is_done
    assert move(0, 1, log_dirs=("any", "/a")).is_done
    assert not move(1, 0).is_done
    assert not move(0, 1, log_dirs=("/b", "any")).is_done


def test_new_replicas_and_other_directories_are_copied() -> None:
    found = move(2, 1, log_dirs=("/x", "/b"))
    assert (found.destinations, found.sources, found.leaving) == ((2,), (0, 1), (0,))
    assert found.dir_moves == {Replica(T0, 2): "/x", Replica(T0, 1): "/b"}
    assert found.copied_bytes == 200
    assert found.former_log_dirs == ("/a", "/a")
    movement = movement_of([found])
    assert (movement.in_bytes, movement.out_bytes, movement.dir_bytes) == ({2: 100}, {0: 100}, {1: 100})
    assert movement.least_s(50, None) == 2
    assert movement.least_s(50, 10) == 10
    assert movement.least_s(None, None) is None


def test_a_move_that_runs_is_only_waited_for() -> None:
    running = [RunningReassignment(T0, (2, 1, 0), (2,), (0,))]
    (found,) = moves_of([PartitionAssignment(T0, (2, 1))], {T0: (2, 1, 0)}, running, DIRS)
    assert not found.is_done
    assert not found.changes_replicas
    assert (found.sources, found.destinations) == ((1, 0), (2,))
    (other,) = moves_of([PartitionAssignment(T0, (0, 1))], {T0: (2, 1, 0)}, running, DIRS)
    assert other.changes_replicas


@given(st.lists(st.integers(0, 50)), st.none() | st.integers(1, 5), st.none() | st.integers(1, 100))
def test_batches_keep_the_order_and_the_limits(sizes, count, max_bytes) -> None:
    moves = [
        Move(PartitionAssignment(TopicPartition("t", n), (1,)), (0,), size_bytes=size)
        for n, size in enumerate(sizes)
    ]
    batches = list(batches_of(moves, count, max_bytes))
    assert [each for batch in batches for each in batch] == moves
    for batch in batches:
        assert count is None or len(batch) <= count
        assert max_bytes is None or len(batch) == 1 or sum(each.copied_bytes for each in batch) <= max_bytes


def test_copies_between_brokers_and_between_directories_are_known() -> None:
    running = [RunningReassignment(T0, (1, 0, 2), (1, 2), (0,)), RunningReassignment(T1, (0,), (), (2,))]
    found = copies_of(running, DIRS, failures={2})
    assert found == [
        Copy(CopyKey(T0, 1, None), 90, 100, 5),
        Copy(CopyKey(T0, 1, "/b"), 30, 90, 5),
        Copy(CopyKey(T0, 2, None), 0, 100, None, is_reachable=False),
    ]
    assert [copy.left_bytes for copy in found] == [10, 60, 100]
    assert found[0].left_s is None
    assert Copy(CopyKey(T0, 1, None), 90, 100, 5, rate_bytes_per_s=5.0).left_s == 2


def test_a_copy_that_stands_still_waits_for_the_throttle_of_its_kind() -> None:
    rates = {1: {FOLLOWER_RATE: BrokerRate("1000"), LOG_DIR_RATE: BrokerRate(None)}}
    between_brokers = Copy(CopyKey(T0, 1, None), 90, 100, 5, rate_bytes_per_s=0.0)
    assert with_throttle(between_brokers, rates) == replace(between_brokers, is_throttled=True)
    for other in (
        replace(between_brokers, rate_bytes_per_s=5.0),
        replace(between_brokers, rate_bytes_per_s=None),
        replace(between_brokers, key=CopyKey(T0, 1, "/b")),
        replace(between_brokers, key=CopyKey(T0, 2, None)),
    ):
        assert with_throttle(other, rates) == other
