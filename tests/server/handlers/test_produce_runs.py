"""Runs of Produce frames leave the same log, answers and counts as the same frames one by one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import encode_request_header
from klog.protocol.produce_request import ProduceRequest, encode_produce_request
from klog.protocol.produce_response import decode_produce_response
from klog.protocol.runs import NoRun, ProduceRun
from klog.server.counters.request_times import RequestCounters
from klog.server.handlers.access import Access
from klog.server.handlers.data.produce_runs import ProduceRuns
from klog.server.handlers.data.produce_waits import ProduceWaits, common_timeout_ms
from klog.server.handlers.data.remembered_targets import RememberedTargets
from klog.server.handlers.dispatch import Route
from tests.request_strategies import NOW_MS, framed, produce_reads
from tests.server.handlers.frame_client import FrameClient, Outbound, traffic_of
from tests.server.handlers.parts import BROKER, OTHER_BROKER, TOPIC, Broker, FakeVerifier, batch, set_isr

pytestmark = pytest.mark.skipif(ProduceRun is NoRun, reason="klog reads no runs without its compiled modules")

OTHER_TOPIC = "others"


class Client(FrameClient):
    """One connection to a broker; `runs` allows runs of frames.

    `end_before` is the log end offset of the first topic before the last read.
    """

    def __init__(
        self,
        root: Path,
        configs: dict[str, str],
        *,
        runs: bool,
        replicas=(1,),
        verifier: FakeVerifier | None = None,
        access: Access | None = None,
    ) -> None:
        self.end_before = 0
        root.mkdir(exist_ok=True)
        self.broker = Broker(root, {TOPIC: configs}, verifier=verifier or FakeVerifier())
        for topic in (TOPIC, OTHER_TOPIC):
            self.broker.lead(topic, replicas=replicas, topic_id=None)
        broker = self.broker
        counters = RequestCounters()
        handler = broker.produce_handler(access)
        counter = counters.by_api[ApiKey.PRODUCE]
        run = ProduceRuns(
            broker.lookup,
            RememberedTargets(broker.lookup),
            broker.clock,
            broker.topic_stats,
            counter,
            lambda: 0,
            ProduceWaits(broker.lookup, broker.produce_purgatory, broker.clock, counter, lambda: 0),
            broker.verification,
            access,
        )
        route = Route(
            handler.handle, may_block=False, failed=handler.failed, run=run.handle if runs else None
        )
        super().__init__(ApiKey.PRODUCE, route, counters, Outbound())

    def results(self) -> dict[str, object]:
        """All that is to be equal."""
        found: dict[str, object] = {
            "answers": self.connection.outbound.read(),
            "closing": self.connection.closing,
            "requests": self.counters.by_api[ApiKey.PRODUCE].requests,
            "traffic": traffic_of(self.broker.topic_stats),
        }
        for where, log in self.broker.logs.logs.items():
            found[str(where)] = log_state(log)
        return found


def log_state(log) -> object:
    files = {path.name: path.read_bytes() for path in sorted(Path(log.directory).iterdir())}
    producers = [
        (producer.entry(), list(producer.batches)) for _, producer in sorted(log.producers.by_id.items())
    ]
    segments = [
        (each.base_offset, each.size, each.max_timestamp, each.bytes_since_index_entry)
        for each in log.segments
    ]
    offsets = log.log_start_offset, log.log_end_offset, log.high_watermark, log.recovery_point
    return files, producers, segments, offsets, log.producers.end_offset, log.epochs.entries


CONFIGS = st.dictionaries(
    st.sampled_from(
        (
            ("segment.bytes", "300"),
            ("segment.bytes", "1000"),
            ("segment.ms", "1"),
            ("segment.ms", "6000"),
            ("segment.index.bytes", "24"),
            ("segment.index.bytes", "48"),
            ("flush.messages", "2"),
            ("flush.messages", "4"),
            ("max.message.bytes", "120"),
            ("cleanup.policy", "compact"),
            ("message.timestamp.type", "LogAppendTime"),
            ("message.timestamp.before.max.ms", "1000"),
            ("message.timestamp.after.max.ms", "1000"),
            ("compression.type", "gzip"),
            ("compression.type", "uncompressed"),
        )
    ),
    st.none(),
    max_size=2,
).map(lambda chosen: dict(chosen.keys()))


def nothing(_: Client) -> None:
    """Nothing happens."""


def caught_up(client: Client) -> None:
    """The follower has all records."""
    for topic in (TOPIC, OTHER_TOPIC):
        client.broker.follow(client.broker.replicas.partitions[topic, 0].log.log_end_offset, topic=topic)


def caught_up_before(client: Client) -> None:
    """The follower has what came before the last read. (Between two frames of a read, a run waits longer.)"""
    client.broker.follow(client.end_before)


def alone(client: Client) -> None:
    """The follower leaves the ISR."""
    set_isr(client.broker.replicas.partitions[TOPIC, 0], BROKER)


def a_second_passed(client: Client) -> None:
    """Requests expire that wait for so long."""
    client.broker.pass_time(1001)


def deposed(client: Client) -> None:
    """The follower leads from now on."""
    client.broker.lead(TOPIC, leader=OTHER_BROKER, epoch=1, replicas=(BROKER, OTHER_BROKER), topic_id=None)


EVENTS = st.sampled_from((nothing, caught_up, caught_up, caught_up_before, alone, a_second_passed, deposed))


@given(
    produce_reads([TOPIC, OTHER_TOPIC, "unknown", "__consumer_offsets"]),
    CONFIGS,
    st.sampled_from(("1", "2", "3")),
    st.lists(EVENTS, max_size=8),
)
@settings(max_examples=30)
def test_frames_that_wait_for_followers_are_served_alike(reads, configs, min_isr, events) -> None:
    configs = {**configs, "min.insync.replicas": min_isr}
    with tempfile.TemporaryDirectory() as root:
        one = Client(Path(root, "runs"), configs, runs=True, replicas=(BROKER, OTHER_BROKER))
        other = Client(Path(root, "single"), configs, runs=False, replicas=(BROKER, OTHER_BROKER))
        for data, event in zip(reads, [*events, *[caught_up] * len(reads)], strict=False):
            for client in (one, other):
                client.end_before = client.broker.replicas.partitions[TOPIC, 0].log.log_end_offset
                client.receive(data)
                event(client)
        assert one.results() == other.results()


@given(
    produce_reads([TOPIC, OTHER_TOPIC, "unknown", "__consumer_offsets"]),
    CONFIGS,
    st.sampled_from(("0", "100", "300")),
    st.sampled_from(((1,), (1,), (1, OTHER_BROKER))),
)
def test_frames_are_served_alike(reads, configs, index_interval, replicas) -> None:
    configs = {**configs, "index.interval.bytes": index_interval}
    with tempfile.TemporaryDirectory() as root:
        one = Client(Path(root, "runs"), configs, runs=True, replicas=replicas)
        other = Client(Path(root, "single"), configs, runs=False, replicas=replicas)
        for data in reads:
            for client in (one, other):
                client.receive(data)
        assert one.results() == other.results()


def produce_frame(
    records=None, *, correlation_id=1, acks=1, topic=TOPIC, partition=0, timeout_ms=1000
) -> bytes:
    records = memoryview(batch()) if records is None else records
    body = encode_produce_request(
        9, ProduceRequest(None, acks, timeout_ms, [(topic, [(partition, records)])])
    )
    return framed(encode_request_header(0, 9, correlation_id, "client") + b"".join(body))


@pytest.fixture
def client(tmp_path) -> Client:
    """A client of a log with one record: what begins a segment is no run."""
    client = Client(tmp_path, {}, runs=True)
    client.receive(produce_frame())
    client.connection.outbound.parts.clear()
    assert not client.in_runs
    return client


def offsets_of(client: Client) -> list[int]:
    answers, offsets = client.connection.outbound.take(), []
    while answers:
        size = int.from_bytes(answers[:4], "big")
        ((_, (result,)),) = decode_produce_response(9, answers[9 : 4 + size]).topics
        assert not result.error_code
        offsets.append(result.base_offset)
        del answers[: 4 + size]
    return offsets


def test_frames_of_one_read_are_written_at_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    pwrite = os.pwrite

    def counted(descriptor, data, position):
        written.append(len(data))
        return pwrite(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", counted)
    data = produce_frame() * 5
    client.receive(data)
    assert (client.in_runs, written) == (len(data), [5 * len(batch())])
    assert offsets_of(client) == [1, 2, 3, 4, 5]


def test_a_run_for_another_partition_follows(client: Client) -> None:
    client.receive(produce_frame(topic=OTHER_TOPIC))
    client.connection.outbound.parts.clear()
    data = produce_frame() + produce_frame(topic=OTHER_TOPIC) + produce_frame()
    client.receive(data)
    assert offsets_of(client) == [1, 1, 2]


def test_nothing_is_answered_without_acks(client: Client) -> None:
    client.receive(produce_frame(acks=0))
    assert client.in_runs
    assert not client.connection.outbound.read()
    assert client.broker.logs.logs[TOPIC, 0].log_end_offset == 2


def test_a_duplicate_ends_a_run(client: Client) -> None:
    def sent(sequence: int) -> bytes:
        fields = {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence}
        return produce_frame(memoryview(batch(**fields)))

    client.receive(sent(0) + sent(1) + sent(1) + sent(2))
    assert offsets_of(client) == [1, 2, 2, 3]
    assert client.in_runs == 3 * len(sent(0))


def test_a_disk_that_fails_is_answered_as_ever(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_):
        raise OSError("no space")

    monkeypatch.setattr(os, "pwrite", broken)
    client.receive(produce_frame() * 2)
    answers = client.connection.outbound.take()
    size = int.from_bytes(answers[:4], "big")
    ((_, (result,)),) = decode_produce_response(9, answers[9 : 4 + size]).topics
    assert result.error_code == 56  # KAFKA_STORAGE_ERROR
    assert len(answers) == 2 * (4 + size)
    assert len(client.broker.logs.background.failures) == 1


def test_other_frames_are_left_to_their_handlers(client: Client) -> None:
    buffer = bytearray(framed(encode_request_header(18, 0, 1, "client")))
    assert client.dispatcher.handle_run(client.connection, buffer, 0, len(buffer)) == 0
    assert client.dispatcher.handle_run(client.connection, buffer, 3, 8) == 3


def test_whoever_waits_for_records_is_woken(client: Client) -> None:
    woken = []
    client.broker.fetch_purgatory.check_and_complete = woken.append
    client.receive(produce_frame() * 3)
    assert woken == [(TOPIC, 0)]


def test_the_clock_stamps_nothing_in_a_run(client: Client) -> None:
    client.receive(produce_frame(memoryview(batch(now_ms=NOW_MS - 5))))
    segment = client.broker.logs.logs[TOPIC, 0].segments.active
    assert (client.in_runs > 0, segment.max_timestamp.timestamp) == (True, NOW_MS)


def replicated(tmp_path: Path, **configs: str) -> Client:
    """A client of a log with one record, which its follower has."""
    configs = {name.replace("_", "."): value for name, value in configs.items()}
    client = Client(tmp_path / "log", configs, runs=True, replicas=(BROKER, OTHER_BROKER))
    client.receive(produce_frame())
    client.broker.follow(1)
    client.connection.outbound.parts.clear()
    return client


def answers_of(client: Client) -> list[tuple[int, int]]:
    """The error and the base offset in each answer."""
    answers, found = client.connection.outbound.take(), []
    while answers:
        size = int.from_bytes(answers[:4], "big")
        ((_, (result,)),) = decode_produce_response(9, answers[9 : 4 + size]).topics
        found.append((result.error_code, result.base_offset))
        del answers[: 4 + size]
    return found


def test_a_run_waits_for_followers_as_a_whole(tmp_path: Path) -> None:
    client = replicated(tmp_path)
    frames = b"".join(produce_frame(correlation_id=each, acks=-1) for each in (1, 2, 3))
    client.receive(frames)
    assert client.in_runs == len(frames)
    client.broker.follow(3)
    assert client.connection.in_flight is not None
    assert not client.connection.outbound.read()
    client.broker.follow(4)
    assert client.connection.in_flight is None
    assert answers_of(client) == [(0, 1), (0, 2), (0, 3)]


def test_a_run_for_which_too_few_replicas_are_in_sync_is_refused(tmp_path: Path) -> None:
    client = replicated(tmp_path, min_insync_replicas="2")
    set_isr(client.broker.replicas.partitions[TOPIC, 0], BROKER)
    client.receive(produce_frame(acks=-1))
    assert client.in_runs == 0
    assert answers_of(client) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]


@pytest.mark.parametrize(
    ("event", "error"),
    [(a_second_passed, ErrorCode.REQUEST_TIMED_OUT), (deposed, ErrorCode.NOT_LEADER_OR_FOLLOWER)],
)
def test_a_run_that_waits_in_vain_says_so_with_its_offsets(tmp_path: Path, event, error) -> None:
    client = replicated(tmp_path)
    client.receive(b"".join(produce_frame(correlation_id=each, acks=-1) for each in (1, 2)))
    event(client)
    assert answers_of(client) == [(error, 1), (error, 2)]


def test_frames_with_other_timeouts_are_one_run_no_longer() -> None:
    frames = bytearray(produce_frame() + produce_frame(timeout_ms=5))
    first = len(produce_frame())
    assert common_timeout_ms(frames, 0, first) == 1000
    assert common_timeout_ms(frames, first, len(frames)) == 5
    assert common_timeout_ms(frames, 0, len(frames)) is None
