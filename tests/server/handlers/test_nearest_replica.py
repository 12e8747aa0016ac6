"""A leader sends consumers to a follower in their rack, which serves them up to its high watermark."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.fetch_response import FetchResponse, PartitionFetched, decode_fetch_response
from klog.protocol.messages import encode_request_header
from klog.server.counters.request_times import ApiCounter
from klog.server.handlers.data.fetch import FetchHandler
from klog.server.handlers.data.fetch_runs import FetchRuns
from klog.server.handlers.data.fetch_sessions import FetchSessions
from klog.server.handlers.data.remembered_targets import RememberedTargets
from klog.server.logs.replica_selection import RackAwareSelector
from tests.request_strategies import framed
from tests.server.handlers.parts import BROKER, OTHER_BROKER, TOPIC, Broker, FakeRequest
from tests.server.handlers.test_fetch import MAX_BYTES, fetch_request, wants

BOTH = (BROKER, OTHER_BROKER)
LEADER_RACK, FOLLOWER_RACK = f"rack{BROKER}", f"rack{OTHER_BROKER}"
LATEST = 17


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


@pytest.fixture
def handler(broker: Broker) -> FetchHandler:
    return FetchHandler(
        broker.lookup,
        FetchSessions(10, broker.clock, iter(range(1, 1000)).__next__),
        broker.fetch_purgatory,
        broker.clock,
        MAX_BYTES,
        broker.topic_stats,
        selector=RackAwareSelector(broker.metadata),
    )


class FakeConnection:
    """Takes answers."""

    def __init__(self) -> None:
        self.outbound = self
        self.unsent: list[object] = []

    def add(self, part: object) -> None: ...


def response(request: FakeRequest) -> FetchResponse:
    return decode_fetch_response(request.api_version, request.answer)


def fetched(handler: FetchHandler, **options) -> PartitionFetched:
    """The answer for the one partition."""
    request = fetch_request(wants(offset=options.pop("offset", 0)), **options)
    handler.handle(request)
    ((found,),) = [topic.partitions for topic in response(request).topics]
    return found


def led(broker: Broker, followed_to: int = 3) -> None:
    broker.lead(replicas=BOTH)
    broker.append(3)
    broker.follow(followed_to)


@pytest.mark.parametrize("version", [11, 12, 13, LATEST])
def test_a_consumer_in_the_rack_of_a_follower_is_sent_there_at_once(
    broker: Broker, handler: FetchHandler, version: int
) -> None:
    led(broker)
    found = fetched(handler, version=version, rack_id=FOLLOWER_RACK, max_wait_ms=60_000, min_bytes=1 << 20)
    assert found.preferred_read_replica == OTHER_BROKER
    assert (found.error_code, bytes(found.records or b"")) == (ErrorCode.NONE, b"")
    assert (found.high_watermark, found.log_start_offset) == (3, 0)


@pytest.mark.parametrize("rack", ["", LEADER_RACK, "elsewhere"])
def test_other_consumers_read_from_the_leader(broker: Broker, handler: FetchHandler, rack: str) -> None:
    led(broker)
    found = fetched(handler, rack_id=rack)
    assert (found.preferred_read_replica, bool(found.records)) == (-1, True)


@pytest.mark.parametrize("version", [4, 10])
def test_consumers_that_know_nothing_of_racks_read_from_the_leader(
    broker: Broker, handler: FetchHandler, version: int
) -> None:
    led(broker)
    assert fetched(handler, version=version, rack_id=FOLLOWER_RACK).records


def test_a_consumer_beyond_what_the_follower_has_reads_from_the_leader(
    broker: Broker, handler: FetchHandler
) -> None:
    led(broker, followed_to=2)
    assert fetched(handler, rack_id=FOLLOWER_RACK, offset=2).preferred_read_replica == OTHER_BROKER
    assert fetched(handler, rack_id=FOLLOWER_RACK, offset=3).error_code == ErrorCode.NONE
    assert fetched(handler, rack_id=FOLLOWER_RACK, offset=3).preferred_read_replica == -1


def test_a_follower_out_of_sync_is_not_named(broker: Broker, handler: FetchHandler) -> None:
    broker.lead(replicas=BOTH, isr=(BROKER,))
    broker.append(3)
    broker.follow(1)
    assert fetched(handler, rack_id=FOLLOWER_RACK).preferred_read_replica == -1


def test_a_follower_is_sent_to_nobody_else(broker: Broker, handler: FetchHandler) -> None:
    led(broker)
    assert fetched(handler, replica_id=OTHER_BROKER, rack_id=FOLLOWER_RACK).records


def test_in_a_session_a_consumer_learns_of_a_nearer_replica_when_it_has_caught_up(
    broker: Broker, handler: FetchHandler
) -> None:
    broker.lead(replicas=BOTH)
    first = fetch_request(wants(), rack_id=FOLLOWER_RACK, session_epoch=0)
    handler.handle(first)
    session_id = response(first).session_id
    quiet = fetch_request(rack_id=FOLLOWER_RACK, session_id=session_id, session_epoch=1)
    handler.handle(quiet)
    assert not response(quiet).topics
    broker.follow(0)
    nearer = fetch_request(rack_id=FOLLOWER_RACK, session_id=session_id, session_epoch=2)
    handler.handle(nearer)
    ((found,),) = [topic.partitions for topic in response(nearer).topics]
    assert found.preferred_read_replica == OTHER_BROKER


@pytest.mark.parametrize(
    ("offset", "error", "has_records"),
    [
        (0, ErrorCode.NONE, True),
        (2, ErrorCode.NONE, False),
        (3, ErrorCode.NONE, False),
        (4, ErrorCode.OFFSET_OUT_OF_RANGE, False),
    ],
)
def test_a_follower_serves_consumers_up_to_its_high_watermark(
    broker: Broker, handler: FetchHandler, offset: int, error: ErrorCode, has_records
) -> None:
    led(broker)
    broker.lead(leader=OTHER_BROKER, epoch=1, replicas=BOTH)
    broker.replicas.partitions[TOPIC, 0].log.set_high_watermark(2)
    found = fetched(handler, offset=offset, rack_id=LEADER_RACK)
    assert (found.error_code, bool(found.records)) == (error, has_records)
    old = fetched(handler, offset=offset, version=10)
    assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("version", [11, 12, LATEST])
@pytest.mark.parametrize(
    ("rack", "chooses", "is_usual"), [("", True, True), ("r", True, False), ("r", False, True)]
)
def test_a_request_with_a_rack_is_not_answered_where_it_was_read(
    broker: Broker, version: int, rack: str, chooses, is_usual
) -> None:
    led(broker)
    runs = FetchRuns(
        broker.lookup,
        RememberedTargets(broker.lookup),
        FetchSessions(10, broker.clock, lambda: 1),
        MAX_BYTES,
        broker.topic_stats,
        ApiCounter(),
        lambda: 0,
        may_choose_replica=chooses,
    )
    request = fetch_request(wants(), version=version, rack_id=rack)
    frame = framed(encode_request_header(ApiKey.FETCH, version, 1, "c") + bytes(request.body))
    assert (runs.handle(FakeConnection(), bytearray(frame), 0, len(frame)) == len(frame)) is is_usual  # type: ignore[arg-type]


def test_a_broker_without_a_rack_leaves_consumers_to_the_leader(broker: Broker) -> None:
    led(broker)
    selector = RackAwareSelector(broker.metadata)
    assert selector.for_rack("") is None
    prefer = selector.for_rack("r")
    assert prefer is not None
    assert prefer(broker.replicas.partitions[TOPIC, 0], 0) == -1
