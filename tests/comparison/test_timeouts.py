"""Members, ids and offsets whose time is up: klog does what Kafka 3.9.1 does.

What happens is compared, not when. In each case only one timeout can be up before the next request.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.comparison import group_requests as requests
from tests.comparison.brokers import both_brokers, opened_pair
from tests.comparison.group_model import subscription
from tests.comparison.group_requests import Commit, Identity
from tests.comparison.pair import Pair
from tests.peers.kafka import KafkaPeer

pytestmark = pytest.mark.kafka

SHORT = timedelta(seconds=2)
# How often offsets are checked. A group that is empty and has no offsets is Dead at the next check.
CHECKS = {"offsets.retention.check.interval.ms": 300}


@pytest.fixture(scope="module")
def ports(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    with both_brokers(kafka3, tmp_path_factory.mktemp("timeouts"), CHECKS) as opened:
        yield opened


@pytest.fixture
def pair(ports: tuple[int, int]) -> Iterator[Pair]:
    with opened_pair(ports) as opened:
        yield opened


def is_state(state: str, members: int):
    def check(answer: Any) -> bool:
        (group,) = answer["groups"]
        return group["group_state"] == state and len(group["members"]) == members

    return check


def identity(joined: dict[str, Any]) -> Identity:
    return Identity(joined["member_id"], joined["generation_id"])


def two_members(pair: Pair, group: str, **second: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answers to the leader and to the other member of a group that has just been joined."""
    pair.send("first", requests.join(3, group), is_answered=True)
    found = pair.settle(requests.describe(5, group))
    (member,) = found["groups"][0]["members"]
    pair.send("second", requests.join(3, group, **second))
    answers = pair.send("first", requests.join(3, group, member["member_id"], rebalance=SHORT))
    return answers["first"], answers["second"]


def test_a_member_without_heartbeats_is_removed_alike(pair: Pair) -> None:
    pair.send("only", requests.join(3, "silent", session=SHORT), is_answered=True)
    pair.settle(requests.describe(5, "silent"), is_state("Dead", 0))


def test_a_member_that_does_not_sync_is_removed_alike(pair: Pair) -> None:
    pair.send("only", requests.join(3, "lazy", rebalance=SHORT), is_answered=True)
    pair.settle(requests.describe(5, "lazy"), is_state("Dead", 0))


def test_an_id_that_is_never_used_is_given_up_alike(pair: Pair) -> None:
    pair.send("first", requests.join(3, "unused"), is_answered=True)
    (member,) = pair.settle(requests.describe(5, "unused"))["groups"][0]["members"]
    pair.send("second", requests.join(9, "unused", session=SHORT), is_answered=True)
    # The leader waits for the id, which nobody joins with.
    pair.send("first", requests.join(3, "unused", member["member_id"], [("range", subscription("t1"))]))
    joined = pair.await_answers(["first"])["first"]
    assert joined["generation_id"] == 2


def test_a_member_that_does_not_join_again_is_removed_alike(pair: Pair) -> None:
    first, second = two_members(pair, "gone", rebalance=SHORT)
    pair.send("second", requests.sync(1, "gone", identity(second), {}))
    pair.send("first", requests.sync(1, "gone", identity(first), {second["member_id"]: b"all"}))
    assert not pair.waiting()
    pair.send("first", requests.join(3, "gone", first["member_id"], rebalance=SHORT))
    alone = pair.await_answers(["first"])["first"]
    assert (alone["generation_id"], len(alone["members"])) == (first["generation_id"] + 1, 1)
    assert pair.ask(requests.heartbeat(3, "gone", identity(second)))["error_code"] == 25


def test_offsets_with_a_time_of_their_own_expire_alike(pair: Pair) -> None:
    commits = [Commit("t1", 0, 5), Commit("t1", 1, 6)]
    now = timedelta(milliseconds=1)
    pair.ask(requests.commit(2, "brief", Identity(), commits[:1], now))
    pair.ask(requests.commit(3, "mixed", Identity(), commits[:1], now))
    pair.ask(requests.commit(3, "mixed", Identity(), commits[1:], timedelta(days=300)))

    def has_left(count: int):
        return lambda answer: sum(len(each["partitions"]) for each in answer["topics"]) == count

    pair.settle(requests.fetch(5, {"mixed": None}), has_left(1))
    pair.settle(requests.fetch(5, {"brief": None}), has_left(0))
    pair.settle(requests.describe(5, "brief"), is_state("Dead", 0))
