"""Runs of Produce frames leave the same log, answers and counts as the same frames one by one."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.protocol.apis import ApiKey
from klog.protocol.messages import encode_request_header
from klog.protocol.produce_request import ProduceRequest, encode_produce_request
from klog.protocol.produce_response import decode_produce_response
from klog.server.handlers.dispatch import Route
from klog.server.handlers.produce_runs import ProduceRuns
from klog.server.handlers.remembered_targets import RememberedTargets
from klog.server.request_times import RequestCounters
from tests.request_strategies import NOW_MS, framed, produce_reads
from tests.server.handlers.frame_client import FrameClient, traffic_of
from tests.server.handlers.parts import OTHER_BROKER, TOPIC, Broker, batch

OTHER_TOPIC = "others"


@dataclass
class Outbound:
    """What is to be sent, kept."""

    sent: bytearray = field(default_factory=bytearray)

    @property
    def size_bytes(self) -> int:
        return len(self.sent)

    def add(self, part) -> None:
        self.sent += part


class Client(FrameClient):
    """One connection to a broker; `runs` allows runs of frames."""

    def __init__(self, root: Path, configs: dict[str, str], *, runs: bool, replicas=(1,)) -> None:
        root.mkdir(exist_ok=True)
        self.broker = Broker(root, {TOPIC: configs})
        for topic in (TOPIC, OTHER_TOPIC):
            self.broker.lead(topic, replicas=replicas, topic_id=None)
        broker = self.broker
        counters = RequestCounters()
        handler = broker.produce_handler()
        run = ProduceRuns(
            broker.lookup,
            RememberedTargets(broker.lookup),
            broker.clock,
            broker.topic_stats,
            counters.by_api[ApiKey.PRODUCE].direct,
            lambda: 0,
        )
        route = Route(
            handler.handle, may_block=False, failed=handler.failed, run=run.handle if runs else None
        )
        super().__init__(ApiKey.PRODUCE, route, counters, Outbound())

    def results(self) -> dict[str, object]:
        """All that is to be equal."""
        found: dict[str, object] = {
            "answers": bytes(self.connection.outbound.sent),
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


def produce_frame(records=None, *, correlation_id=1, acks=1, topic=TOPIC, partition=0) -> bytes:
    records = memoryview(batch()) if records is None else records
    body = encode_produce_request(9, ProduceRequest(None, acks, 1000, [(topic, [(partition, records)])]))
    return framed(encode_request_header(0, 9, correlation_id, "client") + b"".join(body))


@pytest.fixture
def client(tmp_path) -> Client:
    """A client of a log with one record: what begins a segment is no run."""
    client = Client(tmp_path, {}, runs=True)
    client.receive(produce_frame())
    client.connection.outbound.sent.clear()
    assert not client.in_runs
    return client


def offsets_of(client: Client) -> list[int]:
    answers, offsets = client.connection.outbound.sent, []
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
    client.connection.outbound.sent.clear()
    data = produce_frame() + produce_frame(topic=OTHER_TOPIC) + produce_frame()
    client.receive(data)
    assert offsets_of(client) == [1, 1, 2]


def test_nothing_is_answered_without_acks(client: Client) -> None:
    client.receive(produce_frame(acks=0))
    assert client.in_runs
    assert not client.connection.outbound.sent
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
    answers = client.connection.outbound.sent
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
