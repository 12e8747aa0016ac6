"""A leader sends listed partitions no faster than its limit to followers that are not in sync (KIP-73)."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.protocol.fetch_response import decode_fetch_response
from klog.replication.quota import ReplicationQuota
from klog.server.handlers.data.fetch import FetchHandler
from klog.server.handlers.data.fetch_sessions import FetchSessions
from tests.server.handlers.parts import BROKER, OTHER_BROKER, TOPIC, Broker, FakeRequest
from tests.server.handlers.test_fetch import MAX_BYTES, fetch_request, wants

BOTH = (BROKER, OTHER_BROKER)
LIMIT = 10  # bytes a second, which one batch exceeds


class Leader:
    """A broker that leads two partitions; the limit holds for the first."""

    def __init__(self, path: Path) -> None:
        self.broker = Broker(path)
        self.limit: float | None = LIMIT
        quota = ReplicationQuota(lambda: self.limit, lambda key: key == (TOPIC, 0))
        self.handler = FetchHandler(
            self.broker.lookup,
            FetchSessions(10, self.broker.clock, iter(range(1, 1000)).__next__),
            self.broker.fetch_purgatory,
            self.broker.clock,
            MAX_BYTES,
            self.broker.topic_stats,
            quota=quota,
        )

    def lead(self, *isr: int) -> None:
        for partition in (0, 1):
            self.broker.lead(partition=partition, replicas=BOTH, isr=isr)
            self.broker.append(3, partition=partition)

    def sent(self, offset: int = 0, *, max_wait_ms: int = 0, **fields) -> FakeRequest:
        fields = {"replica_id": OTHER_BROKER, **fields}
        request = fetch_request(wants(offset=offset), wants(1, 3), max_wait_ms=max_wait_ms, **fields)
        self.handler.handle(request)
        return request

    def follows(self, offset: int = 0, **fields) -> bool:
        """Whether a fetch of the first partition brings records."""
        ((found, _),) = [
            topic.partitions for topic in decode_fetch_response(17, self.sent(offset, **fields).answer).topics
        ]
        assert found.error_code == 0
        assert found.high_watermark >= 0
        return bool(found.records)


@pytest.fixture
def leader(tmp_path: Path) -> Leader:
    return Leader(tmp_path)


def test_a_follower_out_of_sync_is_sent_nothing_while_the_limit_is_exceeded(leader: Leader) -> None:
    leader.lead(BROKER)
    assert leader.follows(), "nothing has been sent so far"
    assert not leader.follows()
    leader.broker.pass_time(12_000)
    assert leader.follows()


def test_a_follower_in_sync_is_never_held_back_but_counts(leader: Leader) -> None:
    leader.lead(*BOTH)
    assert leader.follows()
    assert leader.follows()
    leader.broker.lead(epoch=1, replicas=BOTH, isr=(BROKER,))
    assert not leader.follows()


def test_without_a_limit_nothing_is_held_back(leader: Leader) -> None:
    leader.lead(BROKER)
    leader.limit = None
    assert leader.follows()
    assert leader.follows()


def test_consumers_are_not_held_back(leader: Leader) -> None:
    leader.lead(BROKER)
    assert leader.follows()
    assert leader.follows(replica_id=-1)


def test_a_fetch_that_is_held_back_waits_and_goes_on_when_there_is_room(leader: Leader) -> None:
    leader.lead(BROKER)
    assert leader.follows()
    request = leader.sent(max_wait_ms=12_000)
    leader.broker.append(1)
    assert not request.answered, "an append changes nothing for it"
    leader.broker.append(1, partition=1)
    assert request.answered, "other partitions are served"
    waiting = fetch_request(wants(0), max_wait_ms=12_000, replica_id=OTHER_BROKER)
    leader.handler.handle(waiting)
    assert not waiting.answered
    leader.broker.pass_time(12_001)
    ((found,),) = [topic.partitions for topic in decode_fetch_response(17, waiting.answer).topics]
    assert found.records


def test_what_was_held_back_by_a_roll_of_the_log_is_not_answered_either(leader: Leader) -> None:
    leader.broker.configs[TOPIC] = {"segment.bytes": "100"}
    leader.lead(BROKER)
    assert leader.follows()
    waiting = fetch_request(wants(0), max_wait_ms=12_000, replica_id=OTHER_BROKER)
    leader.handler.handle(waiting)
    leader.broker.append(5)
    assert not waiting.answered


def test_an_offset_out_of_range_is_said_although_the_follower_is_held_back(leader: Leader) -> None:
    leader.lead(BROKER)
    assert leader.follows()
    ((found, _),) = [topic.partitions for topic in decode_fetch_response(17, leader.sent(99).answer).topics]
    assert found.error_code == 1
