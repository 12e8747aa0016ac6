"""Usual Fetch frames that are answered where they were read give the answers and counts of the others."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats.names import encode_uuid
from klog.protocol.apis import ApiKey
from klog.protocol.fetch_request import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from klog.protocol.fetch_response import decode_fetch_response
from klog.protocol.messages import encode_request_header
from klog.server.counters.request_times import RequestCounters
from klog.server.counters.topic_stats import BrokerTopicStats
from klog.server.handlers.access import Access
from klog.server.handlers.data.fetch import FetchHandler
from klog.server.handlers.data.fetch_runs import FetchRuns
from klog.server.handlers.data.fetch_sessions import EVICTION_MS, FetchSessions
from klog.server.handlers.data.remembered_targets import RememberedTargets
from klog.server.handlers.dispatch import Route
from klog.server.network import outbound as network_outbound
from klog.storage.log import cold_reads
from tests.request_strategies import fetch_reads, framed, session_reads
from tests.server.handlers.frame_client import FrameClient, Outbound, traffic_of
from tests.server.handlers.parts import BROKER, OTHER_BROKER, TOPIC, Broker, Clock

MAX_BYTES = 1 << 20
VERSIONS = range(4, 18)
BATCHES = 10
TRANSACTION = {"producer_id": 9, "producer_epoch": 0, "is_transactional": True}
NAMES = (TOPIC, "large", "zstd", "aborted", "open", "followed", "lagging", "trimmed", "elsewhere", "untold")
IDS = {name: UUID(int=number) for number, name in enumerate(NAMES, 1)}


class Client(FrameClient):
    """One connection to a broker; `runs` allows to answer frames where they were read."""

    def __init__(self, broker: Broker, *, runs: bool, access: Access | None = None) -> None:
        self.topic_stats = BrokerTopicStats()
        counters = RequestCounters()
        numbers = iter(range(1, 1000))
        self.in_background = 0
        self.clock = Clock()
        self.sessions = FetchSessions(10, self.clock, lambda: next(numbers))
        handler = FetchHandler(
            broker.lookup,
            self.sessions,
            broker.fetch_purgatory,
            broker.clock,
            MAX_BYTES,
            self.topic_stats,
            self._run_in_background,
            access=access,
        )
        run = FetchRuns(
            broker.lookup,
            RememberedTargets(broker.lookup),
            self.sessions,
            MAX_BYTES,
            self.topic_stats,
            counters.by_api[ApiKey.FETCH],
            lambda: 0,
            access=access,
        )
        route = Route(
            handler.handle, may_block=False, failed=handler.failed, run=run.handle if runs else None
        )
        self.outbound = Outbound()
        super().__init__(ApiKey.FETCH, route, counters, self.outbound)

    def _run_in_background(self, request, work) -> None:
        self.in_background += 1
        work(request)

    def results(self) -> dict[str, object]:
        """All that is to be equal."""
        fetches, followers = self.counters.by_api[ApiKey.FETCH], self.counters.follower_fetches
        return {
            # Slices are compared with their files and positions, and then by what they read.
            "parts": self.outbound.parts,
            "answers": self.outbound.read(),
            "closing": self.connection.closing,
            "requests": (sum(fetches.remotes.counts), fetches.requests, fetches.failures),
            "followers": followers.requests,
            "traffic": traffic_of(self.topic_stats),
            "sessions": sessions_of(self.sessions),
        }


def sessions_of(sessions: FetchSessions) -> object:
    """All that the sessions remember, and the orders in which they may be evicted."""
    found = []
    for session_id, session in sessions._sessions.items():
        partitions = [
            (key, cached.entry, cached.high_watermark, cached.log_start_offset)
            for key, cached in session.partitions.items()
        ]
        found.append((session_id, session.epoch, session.size, session.is_old, partitions))
    orders = sessions._evictable, sessions._evictable_by_followers, list(sessions._last_used_ms.items())
    return found, orders, sessions.evictions


def serving(root: Path) -> Broker:
    """Partitions 0 that differ in what a fetch of them gives."""
    small = {"segment.bytes": "500", "index.interval.bytes": "0"}
    configs = {TOPIC: small, "trimmed": small, "zstd": {"compression.type": "zstd"}}
    broker = Broker(root, configs)
    for name in NAMES[:-2]:
        replicas = (1, OTHER_BROKER) if name == "lagging" else (1,)
        broker.lead(name, replicas=replicas, topic_id=encode_uuid(IDS[name].bytes))
        value = b"v" * (5000 if name == "large" else 20)
        if name in ("aborted", "open"):
            broker.append(2, name)
            broker.append(1, name, base_sequence=0, **TRANSACTION)
            if name == "aborted":
                broker.end_transaction(aborted=True, topic=name)
            broker.append(BATCHES - 4, name)
        else:
            broker.append(BATCHES, name, value=value)
    broker.follow(4, topic="lagging")
    broker.replicas.partitions["trimmed", 0].delete_records(5)
    broker.lead("followed", leader=OTHER_BROKER, epoch=1, topic_id=encode_uuid(IDS["followed"].bytes))
    broker.tell("elsewhere", leader=OTHER_BROKER, topic_id=encode_uuid(IDS["elsewhere"].bytes))
    broker.lead("untold", topic_id=encode_uuid(IDS["untold"].bytes), tell=False)
    return broker


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Broker:
    """Fetches change nothing in it."""
    return serving(tmp_path_factory.mktemp("logs"))


@pytest.fixture
def broker(tmp_path) -> Broker:
    return serving(tmp_path)


@given(reads=fetch_reads(IDS))
def test_frames_are_served_alike(shared: Broker, reads) -> None:
    one, other = Client(shared, runs=True), Client(shared, runs=False)
    for data in reads:
        one.receive(data)
        other.receive(data)
    assert one.results() == other.results()


def fetch_frame(
    version=12, topic=TOPIC, offset=0, *, committed=False, epoch=-1, client_id="client", **limits
):
    limits = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": MAX_BYTES} | limits
    partition = FetchPartition(0, epoch, offset, -1, -1, MAX_BYTES)
    topics = [FetchTopic(topic, IDS[topic], [partition])]
    request = FetchRequest(isolation_level=int(committed), topics=topics, **limits)
    header = encode_request_header(ApiKey.FETCH, version, 77, client_id)
    return framed(header + encode_fetch_request(version, request))


@given(reads=session_reads(IDS, session_id=1), passing_ms=st.sampled_from((1, EVICTION_MS // 2)))
def test_sessions_are_served_alike(shared: Broker, reads, passing_ms) -> None:
    one, other = Client(shared, runs=True), Client(shared, runs=False)
    for data in reads:
        for client in (one, other):
            client.clock.now_ms += passing_ms
            client.receive(data)
        assert one.results() == other.results()


EVENTS = st.tuples(st.sampled_from(("append", "append", "trim", "lose", "lead")), st.sampled_from("abc"))


@given(reads=session_reads({name: UUID(bytes=name.encode() * 16) for name in "abc"}, 1), data=st.data())
def test_sessions_are_served_alike_while_their_logs_change(reads, data) -> None:
    with tempfile.TemporaryDirectory() as root:
        broker = Broker(Path(root))
        epochs = dict.fromkeys("abc", 0)
        for topic in epochs:
            broker.lead(topic, topic_id=encode_uuid(topic.encode() * 16))
            broker.append(3, topic)
        one, other = Client(broker, runs=True), Client(broker, runs=False)
        for read in reads:
            for client in (one, other):
                client.receive(read)
            assert one.results() == other.results()
            for event, topic in data.draw(st.lists(EVENTS, max_size=2)):
                change(broker, event, topic, epochs)
        assert one.results() == other.results()


def change(broker: Broker, event: str, topic: str, epochs: dict[str, int]) -> None:
    partition = broker.replicas.partitions[topic, 0]
    if event in ("lose", "lead"):
        epochs[topic] += 1
        leader = OTHER_BROKER if event == "lose" else BROKER
        topic_id = encode_uuid(topic.encode() * 16)
        broker.lead(topic, leader=leader, epoch=epochs[topic], topic_id=topic_id)
    elif not partition.state.is_leader:
        return
    elif event == "append":
        broker.append(1, topic)
    elif partition.log.log_start_offset < partition.log.high_watermark:
        partition.delete_records(partition.log.log_start_offset + 1)


def session_frame(epoch, offset, topic=TOPIC, *, version=12, session_id=1, **limits) -> bytes:
    return fetch_frame(version, topic, offset, session_id=session_id, session_epoch=epoch, **limits)


def begin_session(client: Client, *topics: str, version=12) -> None:
    """A full fetch of the ends of partitions, so that they have no news."""
    ends = {"open": BATCHES - 1, "lagging": 4}
    wanted = [
        FetchTopic(name, IDS[name], [FetchPartition(0, -1, ends.get(name, BATCHES), -1, -1, MAX_BYTES)])
        for name in topics
    ]
    request = FetchRequest(0, 1, MAX_BYTES, 0, wanted, 0, 0)
    header = encode_request_header(ApiKey.FETCH, version, 77, "client")
    client.receive(framed(header + encode_fetch_request(version, request)))


@pytest.mark.parametrize("version", range(7, 18))
@pytest.mark.parametrize("topics", [(TOPIC,), ("open", TOPIC, "large", "trimmed", "lagging")])
def test_incremental_fetches_are_answered_where_they_were_read(
    shared: Broker, version: int, topics: tuple[str, ...]
) -> None:
    client, other = Client(shared, runs=True), Client(shared, runs=False)
    frames = [session_frame(epoch, offset, version=version) for epoch, offset in ((1, 0), (2, 4), (3, 7))]
    for each in (client, other):
        begin_session(each, *topics, version=version)
        for frame in frames:
            each.receive(frame)
    assert client.results() == other.results()
    assert client.in_runs == sum(map(len, frames))
    ((session,),) = [client.sessions._sessions.values()]
    assert session.epoch == 4
    assert [cached.entry.offset for cached in session.partitions.values()][-1] == 7


@pytest.mark.parametrize(
    "frame",
    [
        session_frame(2, 0),
        session_frame(1, 0, session_id=2),
        session_frame(1, 0, version=13),
        session_frame(1, 0, "large"),
        session_frame(1, BATCHES),
        session_frame(1, BATCHES + 1),
        session_frame(1, 0, min_bytes=MAX_BYTES),
        session_frame(1, 0, replica_id=OTHER_BROKER),
        session_frame(-1, 0),
        session_frame(0, 0),
    ],
    ids=[
        "another epoch",
        "another session",
        "ids instead of names",
        "a new partition",
        "no records",
        "out of range",
        "too few bytes",
        "a follower",
        "the end of the session",
        "a new session",
    ],
)
def test_other_incremental_fetches_are_left_to_the_handler(shared: Broker, frame: bytes) -> None:
    client, other = Client(shared, runs=True), Client(shared, runs=False)
    for each in (client, other):
        begin_session(each, TOPIC)
        each.receive(frame)
    assert client.results() == other.results()
    assert not client.in_runs


def test_a_session_whose_other_partitions_have_news_is_left_to_the_handler(broker: Broker) -> None:
    client, other = Client(broker, runs=True), Client(broker, runs=False)
    for each in (client, other):
        begin_session(each, TOPIC, "large")
    broker.append(1, "large")
    for each in (client, other):
        each.receive(session_frame(1, 0))
    assert client.results() == other.results()
    assert not client.in_runs


def served_alike(broker: Broker, data: bytes) -> Client:
    """The client whose frames may be answered where they were read, after a comparison with another."""
    client, other = Client(broker, runs=True), Client(broker, runs=False)
    for each in (client, other):
        each.receive(data)
    assert client.results() == other.results()
    return client


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize(
    ("topic", "offset", "epoch"),
    [
        (TOPIC, 0, -1),
        (TOPIC, 7, -1),
        ("large", 2, -1),
        ("open", 0, -1),
        ("lagging", 3, -1),
        ("trimmed", 5, -1),
    ],
)
def test_usual_frames_are_answered_where_they_were_read(
    shared: Broker, version: int, committed: bool, topic: str, offset: int, epoch: int
) -> None:
    data = fetch_frame(version, topic, offset, committed=committed, epoch=epoch)
    client = served_alike(shared, data)
    assert client.in_runs == len(data)
    answer = client.outbound.read()
    begin = 9 if version >= 12 else 8
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    ((name, topic_id, (fetched,)),) = decode_fetch_response(version, answer[begin:]).topics
    assert (name or topic_id) == (IDS[topic] if version >= 13 else topic)
    assert (fetched.error_code, int.from_bytes(fetched.records[:8], "big")) == (0, offset)


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 9])
def test_the_present_leader_epoch_is_usual(shared: Broker, version: int) -> None:
    data = fetch_frame(version, epoch=0)
    assert served_alike(shared, data).in_runs == len(data)
    assert not served_alike(shared, fetch_frame(version, epoch=1)).in_runs


def test_frames_that_follow_each_other_are_all_answered(shared: Broker) -> None:
    usual = fetch_frame() + fetch_frame(topic="open") + fetch_frame(13, topic="trimmed", offset=5)
    out_of_range = fetch_frame(topic="trimmed", offset=0)
    client = served_alike(shared, usual + out_of_range + usual)
    assert client.in_runs == 2 * len(usual)


@pytest.mark.parametrize(
    "data",
    [
        fetch_frame(offset=BATCHES),
        fetch_frame(offset=BATCHES + 1),
        fetch_frame(offset=-1),
        fetch_frame(topic="trimmed", offset=4),
        fetch_frame(topic="lagging", offset=4),
        fetch_frame(topic="followed"),
        fetch_frame(topic="elsewhere"),
        fetch_frame(topic="untold"),
        fetch_frame(topic="aborted", committed=True),
        fetch_frame(9, "zstd"),
        fetch_frame(min_bytes=MAX_BYTES),
        fetch_frame(session_epoch=0),
        fetch_frame(session_id=5, session_epoch=3),
        fetch_frame(replica_id=7),
        fetch_frame(replica_id=-2),
        fetch_frame()[:-1],
        b"\0\0\0\1\0\1",
    ],
)
def test_what_is_not_usual_is_left_to_the_handler(shared: Broker, data: bytes) -> None:
    assert not served_alike(shared, data).in_runs


def test_enough_bytes_or_no_time_to_wait_are_answered_at_once(shared: Broker) -> None:
    for data in (fetch_frame(min_bytes=100), fetch_frame(min_bytes=MAX_BYTES, max_wait_ms=0)):
        assert served_alike(shared, data).in_runs == len(data)


def test_a_partition_that_went_is_no_longer_answered(broker: Broker) -> None:
    client = Client(broker, runs=True)
    client.receive(fetch_frame())
    answered = client.in_runs
    broker.lead(leader=OTHER_BROKER, epoch=1, topic_id=encode_uuid(IDS[TOPIC].bytes))
    client.receive(fetch_frame())
    assert client.in_runs == answered > 0
    broker.lead(epoch=2, topic_id=encode_uuid(IDS[TOPIC].bytes))
    client.receive(fetch_frame())
    assert client.in_runs == 2 * answered


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page cache is empty, and stays so."""

    def preadv(*_):
        raise BlockingIOError(errno.EAGAIN, "cold")

    monkeypatch.setattr(cold_reads, "_NO_WAIT", 8)
    monkeypatch.setattr(os, "preadv", preadv, raising=False)
    return


@pytest.mark.usefixtures("cold")
def test_what_is_not_in_the_page_cache_is_left_to_the_handler(broker: Broker) -> None:
    client = served_alike(broker, fetch_frame(offset=3))
    assert (client.in_runs, client.in_background) == (0, 1)


@pytest.mark.parametrize("runs", [False, True])
def test_records_that_cannot_be_copied_close_the_connection(broker: Broker, runs: bool) -> None:
    client = Client(broker, runs=runs)
    outbound = client.connection.outbound = network_outbound.Outbound(tls=False, is_cached=lambda _: True)
    os.truncate(broker.logs.logs[TOPIC, 0].segments[0].file.path, 100)
    client.receive(fetch_frame() * 2)
    assert client.connection.closing
    assert outbound.size_bytes < 100  # the head of an answer whose records are missing
    assert client.counters.by_api[ApiKey.FETCH].requests == 1
    assert client.topic_stats.topics[TOPIC].fetches == 1


def test_a_disk_that_fails_is_answered_as_ever(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_):
        raise OSError(errno.EIO, "I/O")

    monkeypatch.setattr(cold_reads, "_NO_WAIT", 8)
    monkeypatch.setattr(os, "preadv", broken, raising=False)
    client = Client(broker, runs=True)
    client.receive(fetch_frame(offset=3))
    ((_, _, (fetched,)),) = decode_fetch_response(12, client.outbound.read()[9:]).topics
    assert fetched.error_code == 56  # KAFKA_STORAGE_ERROR
    assert not client.in_runs
    assert len(broker.logs.background.failures) == 1
