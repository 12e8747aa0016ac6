"""Fetch sessions (KIP-227): what they remember, what they leave out, and which of them have to go."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from klog.protocol.error_codes import ErrorCode
from klog.protocol.fetch_request import FetchRequest, FetchTopic, ForgottenTopic, encode_fetch_request
from klog.protocol.fetch_response import FetchResponse, PartitionFetched, decode_fetch_response
from klog.replication.reading import FetchEntry
from klog.server.counters.topic_stats import BrokerTopicStats
from klog.server.handlers.data.fetch import FetchHandler
from klog.server.handlers.data.fetch_sessions import (
    EVICTION_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchSessions,
    next_epoch,
)
from tests.server.handlers.parts import TOPIC, TOPIC_UUID, Broker, Clock, FakeRequest, batch
from tests.server.handlers.test_fetch import MAX_BYTES, wants


def numbers():
    ids = count(1)
    return lambda: next(ids)


class Client:
    """A consumer with one session: counts its epochs as the protocol wants it."""

    def __init__(self, broker: Broker, slots: int = 10) -> None:
        self.sessions = FetchSessions(slots, broker.clock, numbers())
        self.handler = FetchHandler(
            broker.lookup, self.sessions, broker.fetch_purgatory, broker.clock, MAX_BYTES, BrokerTopicStats()
        )
        self.session_id = 0
        self.epoch = INITIAL_EPOCH

    def fetch(
        self, *partitions, forget=(), version=17, topic_id=TOPIC_UUID, epoch=None, max_wait_ms=0
    ) -> FetchResponse:
        request = self.send(
            *partitions,
            forget=forget,
            version=version,
            topic_id=topic_id,
            epoch=epoch,
            max_wait_ms=max_wait_ms,
        )
        return self.receive(request)

    def send(self, *partitions, forget, version, topic_id, epoch, max_wait_ms) -> FakeRequest:
        topics = [FetchTopic(TOPIC, topic_id, list(partitions))] if partitions else []
        forgotten = [ForgottenTopic(TOPIC, topic_id, list(forget))] if forget else []
        epoch = self.epoch if epoch is None else epoch
        fetch = FetchRequest(max_wait_ms, 1, MAX_BYTES, 0, topics, self.session_id, epoch, forgotten)
        request = FakeRequest(1, version, memoryview(encode_fetch_request(version, fetch)))
        self.handler.handle(request)
        return request

    def receive(self, request: FakeRequest) -> FetchResponse:
        response = decode_fetch_response(request.api_version, request.answer)
        if not response.error_code:
            self.session_id = response.session_id
            self.epoch = next_epoch(self.epoch)
        return response


@pytest.fixture
def client(broker: Broker) -> Client:
    for partition in range(3):
        broker.lead(partition=partition)
    return Client(broker)


def told(response: FetchResponse) -> list[int]:
    return [each.partition for topic in response.topics for each in topic.partitions]


@pytest.mark.parametrize(
    ("epoch", "after"), [(0, 1), (1, 2), (2**31 - 2, 2**31 - 1), (2**31 - 1, 1), (-1, -1)]
)
def test_epochs_count_up_and_pass_over_0(epoch: int, after: int) -> None:
    assert next_epoch(epoch) == after


def test_a_full_fetch_makes_a_session_and_tells_of_every_partition(client: Client) -> None:
    response = client.fetch(wants(0), wants(1), wants(2))
    assert (response.session_id, told(response)) == (1, [0, 1, 2])
    assert (len(client.sessions), client.sessions.cached_partitions) == (1, 3)


@pytest.mark.parametrize("version", [7, 12, 13, 17])
def test_an_incremental_fetch_tells_only_what_has_changed(
    broker: Broker, client: Client, version: int
) -> None:
    client.fetch(wants(0), wants(1), wants(2), version=version)
    assert told(client.fetch(version=version)) == []
    broker.append(partition=1)
    assert told(client.fetch(version=version)) == [1]
    assert told(client.fetch(wants(1, offset=1), version=version)) == []


def test_a_moved_log_start_and_a_moved_high_watermark_are_news(broker: Broker, client: Client) -> None:
    client.fetch(wants(0), wants(1))
    broker.append(partition=1)
    assert told(client.fetch(wants(1, offset=1))) == [1]
    assert told(client.fetch()) == []
    broker.replicas.partitions[TOPIC, 1].log.advance_log_start(1)
    assert told(client.fetch()) == [1]
    assert told(client.fetch()) == []


def test_an_error_is_told_every_time_and_its_end_once(broker: Broker, client: Client) -> None:
    client.fetch(wants(0), wants(1, offset=1))
    assert told(client.fetch()) == [1]
    assert told(client.fetch()) == [1]
    assert told(client.fetch(wants(1, offset=0))) == [1]
    assert told(client.fetch()) == []


def test_the_high_watermark_beside_a_diverging_epoch_is_told_again(broker: Broker) -> None:
    # A follower truncates then, and takes no offset from that answer.
    broker.lead(epoch=1)
    broker.append(3)
    broker.lead(epoch=4)
    client = Client(broker)
    client.fetch(wants(offset=4, fetched_epoch=1))
    response = client.fetch(wants(offset=3, fetched_epoch=1))
    assert [each.high_watermark for topic in response.topics for each in topic.partitions] == [3]
    assert told(client.fetch()) == []


def test_partitions_with_records_go_to_the_end(broker: Broker, client: Client) -> None:
    client.fetch(wants(0), wants(1), wants(2))
    broker.append(partition=0)
    broker.append(partition=2)
    assert told(client.fetch()) == [0, 2]
    broker.append(partition=1)
    assert told(client.fetch()) == [1, 0, 2], "what had records is read last"


def test_partitions_are_added_changed_and_forgotten(broker: Broker, client: Client) -> None:
    client.fetch(wants(0))
    assert told(client.fetch(wants(1))) == [1]
    for partition in (0, 1):
        broker.append(partition=partition)
    assert told(client.fetch(forget=[0])) == [1]
    assert client.sessions.cached_partitions == 1


def test_a_session_without_partitions_ends(client: Client) -> None:
    client.fetch(wants(0))
    response = client.fetch(forget=[0])
    assert (response.error_code, response.session_id, len(client.sessions)) == (ErrorCode.NONE, 0, 0)


def test_the_final_epoch_ends_the_session_and_is_answered_in_full(client: Client) -> None:
    client.fetch(wants(0))
    response = client.fetch(wants(0), epoch=FINAL_EPOCH)
    assert (told(response), response.session_id, len(client.sessions)) == ([0], 0, 0)


def test_a_full_fetch_in_a_session_starts_a_new_one(client: Client) -> None:
    client.fetch(wants(0))
    response = client.fetch(wants(1), epoch=INITIAL_EPOCH)
    assert (response.session_id, len(client.sessions)) == (2, 1)


def test_a_session_that_does_not_exist_is_not_found(client: Client) -> None:
    client.session_id = 99
    response = client.fetch(epoch=1)
    assert response == FetchResponse([], ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


@pytest.mark.parametrize("epoch", [2, 7])
def test_an_epoch_out_of_turn_is_refused_and_changes_nothing(client: Client, epoch: int) -> None:
    client.fetch(wants(0))
    assert client.fetch(wants(1), epoch=epoch) == FetchResponse([], ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    assert client.sessions.cached_partitions == 1
    assert client.fetch().error_code == ErrorCode.NONE


def test_a_waiting_request_whose_session_went_on_is_refused(broker: Broker, client: Client) -> None:
    client.fetch(wants(0))
    options = {"forget": (), "version": 17, "topic_id": TOPIC_UUID, "max_wait_ms": 500}
    waiting = client.send(**options, epoch=1)
    client.send(**options, epoch=2)
    broker.append()
    refused = decode_fetch_response(17, waiting.answer)
    assert refused == FetchResponse([], ErrorCode.INVALID_FETCH_SESSION_EPOCH, 1)


def test_a_session_keeps_to_names_or_to_ids(client: Client) -> None:
    client.fetch(wants(0), version=12)
    assert client.fetch(version=13).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    client.session_id, client.epoch = 0, INITIAL_EPOCH
    client.fetch(wants(0), version=13)
    assert client.fetch(version=12).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_topic_id_that_becomes_known_is_served_from_then_on(broker: Broker) -> None:
    client = Client(broker)
    first = client.fetch(wants(0))
    assert first.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    broker.lead()
    broker.append()
    (topic,) = client.fetch().topics
    assert (topic.topic_id, topic.partitions[0].error_code) == (TOPIC_UUID, ErrorCode.NONE)
    assert len(topic.partitions[0].records) == len(batch())


class Cache:
    """Sessions without a broker: full fetches of so many partitions."""

    def __init__(self, slots: int) -> None:
        self.clock = Clock()
        self.sessions = FetchSessions(slots, self.clock, numbers())

    def create(self, size: int = 1, *, follower=False) -> int:
        wanted = {("t", p): FetchEntry(("t", p), 0, 1) for p in range(size)}
        context = self.sessions.context(0, INITIAL_EPOCH, wanted, (), uses_topic_ids=False)
        answers = [(key, PartitionFetched(key[1], 0, 0)) for key in wanted]
        return self.sessions.finish(context, answers, privileged=follower, uses_topic_ids=False).session_id

    def use(self, session_id: int, epoch: int) -> bool:
        return not self.sessions.context(session_id, epoch, {}, (), uses_topic_ids=False).error

    def later(self, milliseconds: int) -> None:
        self.clock.now_ms += milliseconds


def test_an_id_that_is_taken_or_means_no_session_is_not_given_again() -> None:
    cache = Cache(10)
    ids = iter((7, 7, 0, 7, 8))
    cache.sessions = FetchSessions(10, cache.clock, lambda: next(ids))
    assert [cache.create(), cache.create()] == [7, 8]


def test_an_answer_to_a_session_that_has_gone_on_changes_nothing() -> None:
    cache = Cache(10)
    session = cache.sessions.find(cache.create(), 1, uses_topic_ids=False)
    assert session is not None
    before = cache.sessions.find(1, 1, uses_topic_ids=False)
    entry = FetchEntry(("t", 0), 3, 1)
    answer = (("t", 0), entry, 5, 0)
    assert not cache.sessions.answer_one(session, 2, *answer)
    assert session.partitions["t", 0].entry.offset == 0
    assert cache.sessions.find(1, 1, uses_topic_ids=False) is before
    assert cache.sessions.answer_one(session, 1, *answer)
    assert session.partitions["t", 0].entry == entry
    cache.sessions.remove(session.id)
    assert not cache.sessions.answer_one(session, 2, *answer)


class TestEviction:
    def test_without_slots_there_are_no_sessions(self) -> None:
        assert Cache(0).create() == 0

    def test_young_sessions_stay(self) -> None:
        cache = Cache(1)
        assert [cache.create(), cache.create(100)] == [1, 0]
        assert cache.use(1, 1)

    def test_an_idle_session_goes(self) -> None:
        cache = Cache(1)
        cache.create()
        cache.later(EVICTION_MS)
        assert cache.create() == 0
        cache.later(1)
        assert cache.create() == 2
        assert (cache.use(1, 1), cache.sessions.evictions, len(cache.sessions)) == (False, 1, 1)

    def test_a_used_session_that_is_old_goes_for_a_larger_one(self) -> None:
        cache = Cache(1)
        cache.create(2)
        cache.later(EVICTION_MS + 1)
        assert cache.use(1, 1)
        assert cache.create(1) == 0
        assert cache.create(3) == 2

    def test_the_smallest_goes_first(self) -> None:
        cache = Cache(3)
        for size in (5, 2, 9):
            cache.create(size)
        cache.later(EVICTION_MS + 1)
        for session_id in (1, 2, 3):
            cache.use(session_id, 1)
        cache.create(6)
        assert [cache.use(session_id, 2) for session_id in (1, 2, 3)] == [True, False, True]

    def test_followers_take_a_consumers_place_at_any_age_but_not_a_followers(self) -> None:
        cache = Cache(2)
        assert [cache.create(50), cache.create(50, follower=True)] == [1, 2]
        assert cache.create(1, follower=True) == 3
        assert cache.create(1, follower=True) == 0
        assert [cache.use(session_id, 1) for session_id in (1, 2, 3)] == [False, True, True]

    def test_consumers_do_not_take_a_followers_place(self) -> None:
        cache = Cache(1)
        cache.create(1, follower=True)
        cache.later(EVICTION_MS + 1)
        cache.use(1, 1)
        assert cache.create(100) == 0


class EvictionMachine(RuleBasedStateMachine):
    """Whatever comes in whatever order: the books of the cache agree, and slots are never exceeded."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache(4)
        self.epochs: dict[int, int] = {}

    @rule(size=st.integers(0, 5), follower=st.booleans())
    def create(self, size: int, follower: bool) -> None:
        session_id = self.cache.create(size, follower=follower)
        if session_id:
            self.epochs[session_id] = 1

    @rule(data=st.data(), grow=st.integers(0, 3))
    def use(self, data, grow: int) -> None:
        if not self.epochs:
            return
        session_id = data.draw(st.sampled_from(sorted(self.epochs)))
        wanted = {("u", p): FetchEntry(("u", p), 0, 1) for p in range(grow)}
        context = self.cache.sessions.context(
            session_id, self.epochs[session_id], wanted, (), uses_topic_ids=False
        )
        if context.error or context.session is None:
            del self.epochs[session_id]
        else:
            self.epochs[session_id] += 1
            assert set(wanted) <= {key for key, _ in context.known} | set(context.wanted)

    @rule(milliseconds=st.sampled_from([1, EVICTION_MS // 2, EVICTION_MS + 1]))
    def later(self, milliseconds: int) -> None:
        self.cache.later(milliseconds)

    @rule(data=st.data())
    def end(self, data) -> None:
        if self.epochs:
            session_id = data.draw(st.sampled_from(sorted(self.epochs)))
            self.cache.sessions.remove(session_id)
            del self.epochs[session_id]

    @invariant()
    def the_books_agree(self) -> None:
        sessions = self.cache.sessions
        known = {session.id: session for session in sessions._sessions.values()}
        assert len(known) <= 4
        assert set(sessions._last_used_ms) == set(known)
        for order in (sessions._evictable, sessions._evictable_by_followers):
            assert order == sorted(order)
            for privileged, size, session_id in order:
                assert (privileged, size) == (known[session_id].privileged, known[session_id].size)
        assert set(sessions._evictable) <= set(sessions._evictable_by_followers)
        consumers = {session.id for session in known.values() if not session.privileged}
        assert consumers <= {rank.session_id for rank in sessions._evictable_by_followers}


EvictionMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestEvictionMachine = EvictionMachine.TestCase


def test_that_a_version_has_no_zstd_is_nothing_to_its_session(tmp_path) -> None:
    broker = Broker(tmp_path, {TOPIC: {"compression.type": "zstd"}})
    broker.lead()
    broker.append()
    client = Client(broker)
    first = client.fetch(wants(offset=1), version=9)
    assert [each.error_code for _, _, (each,) in first.topics] == [ErrorCode.UNSUPPORTED_COMPRESSION_TYPE]
    assert client.fetch(version=9).topics == []
