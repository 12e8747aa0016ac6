"""New partitions are refused if this broker may not open the files of their logs."""

from __future__ import annotations

import pytest

from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.refusals import RefusedError
from klog.server.handlers.topics.partition_room import PartitionRoom

ME = 1


class World:
    """A broker with room for 10 logs."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.here: set[TopicPartition] = set()
        self.room = PartitionRoom(
            ME, lambda: 10 - len(self.here), lambda key: key in self.here, lambda: self.now_ms
        )

    def refuses(self, assignment: dict[int, list[int]]) -> bool:
        try:
            self.room.require(assignment)
        except RefusedError:
            return True
        return False


def mine(count: int) -> dict[int, list[int]]:
    return {number: [ME, 2] for number in range(count)}


def test_more_partitions_than_there_is_room_for_are_refused() -> None:
    world = World()
    assert not world.refuses(mine(10))
    assert world.refuses(mine(11))
    with pytest.raises(
        RefusedError, match=r"11 new partitions on broker 1.*ulimit -n.*room for 10"
    ) as refused:
        world.room.require(mine(11))
    assert refused.value.error is ErrorCode.POLICY_VIOLATION


def test_replicas_on_other_brokers_do_not_count() -> None:
    others = {number: [2, 3] for number in range(1000)}
    assert not World().refuses(others)
    assert not World().refuses(others | mine(10))
    assert World().refuses(others | mine(11))


def test_partitions_that_have_no_log_yet_count() -> None:
    world = World()
    world.room.promise("t", mine(6))
    assert not world.refuses(mine(4))
    assert world.refuses(mine(5))
    world.here |= {TopicPartition("t", number) for number in range(6)}
    assert not world.refuses(mine(4))
    assert world.refuses(mine(5))


def test_partitions_that_never_come_are_forgotten() -> None:
    world = World()
    world.room.promise("t", mine(6))
    world.now_ms = 59_999
    assert world.refuses(mine(5))
    world.now_ms = 60_000
    assert not world.refuses(mine(5))
