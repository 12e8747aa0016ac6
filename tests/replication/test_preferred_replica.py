"""A consumer reads from a replica in its rack, if one has what it asks for (KIP-392)."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.replication.partition import Partition
from klog.replication.preferred_replica import ReplicaView, candidates, in_rack
from tests.server.handlers.parts import BROKER, Broker

RACKS = {1: "a", 2: "b", 3: "b", 4: "c"}
EVERYONE = (BROKER, 2, 3, 4)


def view(broker_id: int, end_offset: int = 5, caught_up_ms: int = 0) -> ReplicaView:
    return ReplicaView(broker_id, RACKS[broker_id], end_offset, caught_up_ms)


@pytest.mark.parametrize(
    ("rack", "chosen"), [("a", None), ("", None), ("elsewhere", None), ("c", 4), ("b", 3)]
)
def test_a_follower_in_the_rack_is_chosen_unless_the_leader_is_there_too(rack: str, chosen) -> None:
    assert in_rack(rack, "a", [view(2), view(3), view(4)]) == chosen


@pytest.mark.parametrize(
    ("followers", "chosen"),
    [
        ([view(2, 9, 1), view(3, 5, 9)], 2),
        ([view(2, 5, 9), view(3, 5, 1)], 2),
        ([view(3, 5, 1), view(2, 5, 1)], 3),
    ],
)
def test_among_several_it_is_the_one_with_most_records_then_the_latest_then_the_highest_id(
    followers, chosen
) -> None:
    assert in_rack("b", "a", followers) == chosen


def test_a_leader_without_a_rack_is_nobody_s_neighbour() -> None:
    assert in_rack("c", None, [view(4)]) == 4


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    broker = Broker(tmp_path)
    led = broker.lead(replicas=EVERYONE, isr=(BROKER, 2, 3))
    broker.append(5)
    broker.follow(4, replica_id=2, start_offset=2)
    broker.follow(5, replica_id=3)
    broker.follow(5, replica_id=4)
    return led


@pytest.mark.parametrize(("offset", "found"), [(1, [3]), (2, [2, 3]), (4, [2, 3]), (5, [3]), (6, [])])
def test_a_follower_can_serve_what_it_has_if_it_is_in_sync(partition: Partition, offset: int, found) -> None:
    assert [each.broker_id for each in candidates(partition, offset, RACKS)] == found


def test_a_follower_that_is_not_alive_cannot_serve(partition: Partition) -> None:
    assert [each.broker_id for each in candidates(partition, 3, {1: "a", 2: "b"})] == [2]


def test_a_follower_that_has_never_fetched_cannot_serve(tmp_path: Path) -> None:
    partition = Broker(tmp_path).lead(replicas=EVERYONE, isr=EVERYONE)
    assert candidates(partition, 0, RACKS) == []
