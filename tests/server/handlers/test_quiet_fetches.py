"""Fetch sessions pass over partitions without news; their clients see what a full fetch would show them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.protocol.error_codes import ErrorCode
from klog.protocol.fetch_request import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from klog.protocol.fetch_response import PartitionFetched, decode_fetch_response
from klog.replication import reading
from klog.replication.partition import CONSUMER
from klog.server.handlers.data import fetch as fetch_module
from klog.server.handlers.data.fetch import FetchHandler
from klog.server.handlers.data.fetch_sessions import FetchSessions
from tests.server.handlers.parts import BROKER, OTHER_BROKER, TOPIC, TOPIC_UUID, Broker, FakeRequest

VERSION = 17
PARTITIONS = range(3)

EVENTS = st.tuples(
    st.sampled_from(
        ["append", "begin", "commit", "abort", "delete", "new epoch", "follow", "lead", "nothing"]
    ),
    st.sampled_from(PARTITIONS),
)


@dataclass
class Reader:
    """A consumer that names its partitions once, and afterwards only those whose offset has changed."""

    handler: FetchHandler
    committed: bool = False
    session_id: int = 0
    epoch: int = 0
    replica_id: int = CONSUMER

    def __post_init__(self) -> None:
        self.offsets = dict.fromkeys(PARTITIONS, 0)
        self.moved = set(PARTITIONS)
        self.seen: dict[int, tuple[int, int, int]] = {}

    def request(self, max_wait_ms: int = 0) -> FakeRequest:
        wanted = [FetchPartition(p, -1, self.offsets[p], -1, -1, 1 << 20) for p in sorted(self.moved)]
        topics = [FetchTopic(TOPIC, TOPIC_UUID, wanted)] if wanted else []
        fetch = FetchRequest(
            max_wait_ms,
            1,
            1 << 20,
            int(self.committed),
            topics,
            self.session_id,
            self.epoch,
            replica_id=self.replica_id,
            replica_epoch=7,
        )
        request = FakeRequest(1, VERSION, memoryview(encode_fetch_request(VERSION, fetch)))
        self.handler.handle(request)
        self.epoch += 1
        self.moved = set()
        return request

    def take(self, request: FakeRequest) -> list[int]:
        """The partitions in the answer; where records came, the next request asks for those behind them."""
        answer = decode_fetch_response(VERSION, request.answer)
        assert answer.error_code == ErrorCode.NONE
        self.session_id = answer.session_id
        found = [partition for topic in answer.topics for partition in topic.partitions]
        for one in found:
            self.seen[one.partition] = told_by(one)
            if one.records:
                self.offsets[one.partition] = (
                    one.high_watermark if not self.committed else one.last_stable_offset
                )
                self.moved.add(one.partition)
        return [one.partition for one in found]


def told_by(answer: PartitionFetched) -> tuple[int, int, int]:
    return answer.error_code, answer.high_watermark, answer.log_start_offset


def new_handler(broker: Broker) -> FetchHandler:
    sessions = FetchSessions(10, broker.clock, iter(range(1, 1000)).__next__)
    return FetchHandler(
        broker.lookup, sessions, broker.fetch_purgatory, broker.clock, 1 << 26, broker.topic_stats
    )


def happen(broker: Broker, event: str, partition: int, epochs: dict[int, int]) -> None:
    replica = broker.replicas.partitions[TOPIC, partition]
    log = replica.log
    open_transaction = log.producers.first_unstable_offset is not None
    if event in {"new epoch", "follow", "lead"}:
        epochs[partition] += 1
        leader = OTHER_BROKER if event == "follow" else BROKER
        replicas = (BROKER, OTHER_BROKER) if event == "follow" else (BROKER,)
        broker.lead(partition=partition, epoch=epochs[partition], leader=leader, replicas=replicas)
    elif not replica.state.is_leader:
        return
    elif event == "append":
        broker.append(partition=partition)
    elif event == "begin" and not open_transaction:
        broker.append(
            partition=partition, producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True
        )
    elif event in {"commit", "abort"} and open_transaction:
        broker.end_transaction(aborted=event == "abort", partition=partition)
    elif event == "delete":
        replica.delete_records(log.high_watermark)


def full_view(handler: FetchHandler, reader: Reader) -> dict[int, PartitionFetched]:
    """What a client without a session is answered from the same offsets."""
    other = Reader(handler, reader.committed, epoch=-1)
    other.offsets = dict(reader.offsets)
    answer = decode_fetch_response(VERSION, other.request().answer)
    return {one.partition: one for topic in answer.topics for one in topic.partitions}


@pytest.mark.parametrize("committed", [False, True])
@settings(max_examples=50)
@given(events=st.lists(EVENTS, max_size=25))
def test_a_session_tells_what_has_changed_and_only_that(tmp_path_factory, committed, events) -> None:
    broker = Broker(tmp_path_factory.mktemp("logs"))
    epochs = dict.fromkeys(PARTITIONS, 0)
    for partition in PARTITIONS:
        broker.lead(partition=partition)
    handler = new_handler(broker)
    reader = Reader(handler, committed)
    reader.take(reader.request())
    for event, partition in events:
        happen(broker, event, partition, epochs)
        before = dict(reader.seen)
        full = full_view(handler, reader)
        expected = {
            number
            for number, answer in full.items()
            if answer.records or answer.error_code or told_by(answer) != before.get(number)
        }
        assert set(reader.take(reader.request())) == expected
        assert {number: told_by(full[number]) for number in PARTITIONS} == reader.seen
    broker.replicas.partitions[TOPIC, 0].log.close()


@pytest.fixture
def reader(broker: Broker) -> Reader:
    """One that has read all there is, and knows it."""
    for partition in PARTITIONS:
        broker.lead(partition=partition)
    reader = Reader(new_handler(broker))
    reader.take(reader.request())
    return reader


def test_quiet_partitions_are_not_read(broker: Broker, reader: Reader, monkeypatch) -> None:
    asked = []

    def counted(replicas, entries, limits, missing, **options):
        asked.append([entry.key[1] for entry in entries])
        return reading.read_all(replicas, entries, limits, missing, **options)

    monkeypatch.setattr(fetch_module, "read_all", counted)
    broker.append(partition=1)
    assert reader.take(reader.request()) == [1]
    assert asked == [[1]]


def test_quiet_partitions_count_as_fetched(broker: Broker, reader: Reader) -> None:
    before = broker.topic_stats.topics[TOPIC].fetches
    reader.take(reader.request())
    assert broker.topic_stats.topics[TOPIC].fetches == before + len(PARTITIONS)


def test_a_fetch_of_quiet_partitions_waits_for_an_append_to_any(broker: Broker, reader: Reader) -> None:
    request = reader.request(max_wait_ms=500)
    assert not request.answered
    broker.append(partition=2)
    assert reader.take(request) == [2]


@pytest.mark.parametrize("event", ["new epoch", "follow"])
def test_a_reader_that_knows_no_epochs_and_may_read_from_followers_waits_on(
    broker: Broker, reader: Reader, event: str
) -> None:
    request = reader.request(max_wait_ms=500)
    happen(broker, event, 2, dict.fromkeys(PARTITIONS, 0))
    assert not request.answered
    broker.pass_time(501)
    assert reader.take(request) == []


def test_what_happens_while_a_fetch_of_quiet_partitions_begins_to_wait_is_not_missed(
    broker: Broker, reader: Reader, monkeypatch
) -> None:
    watch = broker.fetch_purgatory.watch

    def late(operation, keys):
        broker.append(partition=1)
        return watch(operation, keys)

    monkeypatch.setattr(broker.fetch_purgatory, "watch", late)
    assert reader.take(reader.request(max_wait_ms=500)) == [1]


def test_after_its_time_a_fetch_of_quiet_partitions_is_answered_with_nothing(
    broker: Broker, reader: Reader
) -> None:
    request = reader.request(max_wait_ms=500)
    broker.pass_time(501)
    assert reader.take(request) == []


@pytest.fixture
def follower(broker: Broker) -> Reader:
    """Another broker that has fetched all records, but has not shown yet that it has the last ones."""
    for partition in PARTITIONS:
        broker.lead(partition=partition, replicas=(BROKER, OTHER_BROKER))
        broker.append(partition=partition)
    follower = Reader(new_handler(broker), replica_id=OTHER_BROKER)
    follower.take(follower.request())
    follower.offsets = dict.fromkeys(PARTITIONS, 1)
    follower.moved = set(PARTITIONS)
    return follower


def test_a_follower_s_fetch_moves_the_high_watermark_before_it_waits(
    broker: Broker, follower: Reader
) -> None:
    log = broker.replicas.partitions[TOPIC, 0].log
    assert log.high_watermark == 0
    request = follower.request(max_wait_ms=500)
    assert (log.high_watermark, request.answered) == (1, False)
    broker.pass_time(501)
    assert follower.take(request) == list(PARTITIONS)
    assert {number: seen[1] for number, seen in follower.seen.items()} == dict.fromkeys(PARTITIONS, 1)


def test_a_follower_s_fetch_without_news_still_counts_as_progress(broker: Broker, follower: Reader) -> None:
    quiet = broker.replicas.partitions[TOPIC, 0]
    follower.take(follower.request())
    follower.take(follower.request())
    before = quiet.followers[OTHER_BROKER]
    broker.clock.now_ms += 400
    assert follower.take(follower.request()) == [], "nothing is news"
    after = quiet.followers[OTHER_BROKER]
    assert after == before._replace(last_fetch_ms=broker.clock(), last_caught_up_ms=broker.clock())
    assert after.broker_epoch == 7


def test_a_fetch_that_is_read_again_is_recorded_once(broker: Broker, follower: Reader) -> None:
    request = follower.request(max_wait_ms=500)
    recorded = broker.replicas.partitions[TOPIC, 1].followers[OTHER_BROKER]
    broker.clock.now_ms += 400
    broker.append(partition=1)
    assert 1 in follower.take(request)
    assert broker.replicas.partitions[TOPIC, 1].followers[OTHER_BROKER] == recorded
