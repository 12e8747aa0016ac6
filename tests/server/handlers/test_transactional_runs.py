"""Runs of Produce frames of transactions leave what the same frames leave one by one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.coordinator.transactions.values import Producer
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import encode_request_header
from klog.protocol.produce_request import ProduceRequest, encode_produce_request
from klog.protocol.runs import NoRun, ProduceRun
from klog.replication.partition import PartitionError
from klog.server.handlers.data.produce_waits import common_timeout_ms
from klog.storage.log.append_values import AppendError
from tests.request_strategies import framed, transactional_reads
from tests.server.handlers import test_produce_runs as plain_runs
from tests.server.handlers.parts import BROKER, OTHER_BROKER, TOPIC, FakeVerifier, batch
from tests.server.handlers.test_produce_runs import CONFIGS, EVENTS, OTHER_TOPIC, answers_of, caught_up

pytestmark = pytest.mark.skipif(ProduceRun is NoRun, reason="klog reads no runs without its compiled modules")

SENDERS = (6, 7)


class Coordinator(FakeVerifier):
    """Knows the partitions of each producer's transaction, and fences epochs below the highest it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.error = ErrorCode.NONE
        self.partitions = {each: {(TOPIC, 0), (OTHER_TOPIC, 0)} for each in SENDERS}
        self.epochs = dict.fromkeys(SENDERS, 0)

    def _error(self, producer: Producer, key: TopicPartition) -> ErrorCode:
        if self.error:
            return self.error
        producer_id, epoch = producer
        if producer_id not in self.epochs:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if epoch < self.epochs[producer_id]:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        self.epochs[producer_id] = epoch
        return ErrorCode.NONE if key in self.partitions[producer_id] else ErrorCode.TRANSACTION_ABORTABLE


class Client(plain_runs.Client):
    """One connection to a broker whose coordinator knows two producers."""

    def __init__(self, root: Path, configs: dict[str, str], *, runs: bool, replicas=(BROKER,)) -> None:
        self.coordinator = Coordinator()
        super().__init__(root, configs, runs=runs, replicas=replicas, verifier=self.coordinator)
        self.woken: list[set[tuple[str, int]]] = []
        self.broker.fetch_purgatory.check_and_complete = self._wake

    def _wake(self, key: tuple[str, int]) -> None:
        self.woken[-1].add(key)

    def receive(self, data: bytes) -> None:
        self.woken.append(set())
        super().receive(data)

    def results(self) -> dict[str, object]:
        found = super().results()
        found["woken"] = self.woken
        # A run waits as one operation.
        found["waits"] = self.broker.produce_purgatory.waiting > 0
        for where, log in self.broker.logs.logs.items():
            producers = log.producers
            verifying = {
                producer_id: entry._replace(guard=None) for producer_id, entry in producers.verifying.items()
            }
            stable = producers.first_unstable_offset, log.last_stable_offset
            aborted = [txn for segment in log.segments for txn in segment.aborted()]
            found[f"transactions of {where}"] = verifying, stable, aborted
        return found


# -- what happens between reads ------------------------------------------------------------------------------


def ended(producer_id: int, epoch: int, aborted: bool, goes_on: bool, client: Client) -> None:
    """A marker is written. The partition may be a part of the next transaction."""
    if not goes_on:
        client.coordinator.partitions[producer_id].discard((TOPIC, 0))
    # It may be too old, or this broker leads no longer, or the ISR is too small.
    with suppress(AppendError, PartitionError):
        client.broker.end_transaction(aborted=aborted, producer_id=producer_id, epoch=epoch)


def added(producer_id: int, client: Client) -> None:
    """The partition is a part of the producer's transaction."""
    client.coordinator.partitions[producer_id].add((TOPIC, 0))


def fenced(producer_id: int, client: Client) -> None:
    """Another producer with the same transactional id has begun."""
    client.coordinator.epochs[producer_id] += 1


def coordinated_elsewhere(client: Client) -> None:
    """Another broker has to be asked."""
    client.coordinator.slow = True


def coordinated_here(client: Client) -> None:
    """Another broker has answered; this one is asked from now on."""
    client.coordinator.answer()
    client.coordinator.slow = False


def not_asked(error: ErrorCode, client: Client) -> None:
    """The coordinator has this error for every question, or none any more."""
    client.coordinator.error = error


def switched(client: Client) -> None:
    """Verification is switched on or off."""
    client.coordinator.is_enabled = not client.coordinator.is_enabled


Event = Callable[[Client], None]
IDS = st.sampled_from(SENDERS)
MARKERS = st.builds(
    lambda *values: partial(ended, *values), IDS, st.sampled_from((0, 0, 1)), st.booleans(), st.booleans()
)
TRANSACTION_EVENTS: st.SearchStrategy[Event] = st.one_of(
    MARKERS,
    MARKERS,
    st.builds(lambda each: partial(added, each), IDS),
    st.builds(lambda each: partial(fenced, each), IDS),
    st.sampled_from((coordinated_elsewhere, coordinated_here, coordinated_here, switched)),
    st.sampled_from((ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_COORDINATOR)).map(
        lambda error: partial(not_asked, error)
    ),
)


def differences(reads, configs, events, replicas) -> list[str]:
    """What is not alike if the reads are served in runs, and one by one, with an event after each.

    Only the names, because comparing the values for a message takes minutes. Nothing fails in here, because
    Hypothesis keeps the frames of a failure, and with them the logs, until memory has run out.
    """
    with tempfile.TemporaryDirectory() as root:
        one = Client(Path(root, "runs"), configs, runs=True, replicas=replicas)
        other = Client(Path(root, "single"), configs, runs=False, replicas=replicas)
        for data, several in zip(reads, [*events, *[[caught_up]] * len(reads)], strict=False):
            for client in (one, other):
                client.end_before = client.broker.replicas.partitions[TOPIC, 0].log.log_end_offset
                client.receive(data)
                for event in several:
                    event(client)
        for client in (one, other):
            client.coordinator.answer()
        found, expected = one.results(), other.results()
        return [name for name in found | expected if found.get(name) != expected.get(name)]


TOPICS = [TOPIC, OTHER_TOPIC, "unknown", "__consumer_offsets"]


@given(
    transactional_reads(TOPICS),
    CONFIGS,
    st.sampled_from(("0", "100", "300")),
    st.lists(st.lists(TRANSACTION_EVENTS, max_size=2), max_size=6),
)
def test_transactional_frames_are_served_alike(reads, configs, index_interval, events) -> None:
    configs = {**configs, "index.interval.bytes": index_interval}
    assert differences(reads, configs, events, (BROKER,)) == []


@given(
    transactional_reads(TOPICS),
    CONFIGS,
    st.sampled_from(("1", "2")),
    st.lists(st.lists(TRANSACTION_EVENTS | EVENTS | st.just(caught_up), max_size=3), max_size=6),
)
@settings(max_examples=50)
def test_transactional_frames_that_wait_for_followers_are_served_alike(reads, configs, isr, events) -> None:
    configs = {**configs, "min.insync.replicas": isr}
    assert differences(reads, configs, events, (BROKER, OTHER_BROKER)) == []


# -- single runs ---------------------------------------------------------------------------------------------


def frame(sequence: int, *, version=9, acks=1, epoch=0, timeout_ms=1000, name="payments") -> bytes:
    """A frame with one record of the producer 6."""
    fields = {"producer_id": 6, "producer_epoch": epoch, "base_sequence": sequence, "is_transactional": True}
    records = memoryview(batch(**fields))
    request = ProduceRequest(name, acks, timeout_ms, [(TOPIC, [(0, records)])])
    header = encode_request_header(0, version, sequence, "client")
    return framed(header + b"".join(encode_produce_request(version, request)))


def started(tmp_path: Path, replicas=(BROKER,)) -> Client:
    """A client of a log with one record: what begins a segment is no run."""
    client = Client(tmp_path, {}, runs=True, replicas=replicas)
    client.receive(plain_runs.produce_frame())
    client.connection.outbound.take()
    caught_up(client)
    return client


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return started(tmp_path)


def log_of(client: Client):
    return client.broker.logs.logs[TOPIC, 0]


def test_frames_of_a_transaction_are_written_at_once(client: Client, monkeypatch) -> None:
    written = []
    pwrite = os.pwrite

    def counted(descriptor, data, position):
        written.append(len(data))
        return pwrite(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", counted)
    data = b"".join(frame(each) for each in range(4))
    client.receive(data)
    assert (client.in_runs, len(written)) == (len(data), 1)
    assert answers_of(client) == [(0, 1), (0, 2), (0, 3), (0, 4)]
    assert (log_of(client).last_stable_offset, log_of(client).high_watermark) == (1, 5)


def test_what_another_broker_coordinates_is_a_run_when_its_transaction_is_open(client: Client) -> None:
    client.coordinator.slow = True
    client.receive(frame(0))
    assert (client.in_runs, len(client.coordinator.waiting)) == (0, 1)
    client.coordinator.answer()
    client.receive(frame(1))
    assert (client.in_runs, client.coordinator.waiting) == (len(frame(1)), [])
    assert answers_of(client) == [(0, 1), (0, 2)]


def test_a_partition_that_is_not_in_the_transaction_is_not_written(client: Client) -> None:
    client.coordinator.partitions[6].clear()
    client.receive(frame(0) + frame(1))
    assert client.in_runs == 0
    assert answers_of(client) == [(ErrorCode.INVALID_TXN_STATE, -1)] * 2
    assert log_of(client).last_stable_offset == 1


def test_a_marker_between_the_question_and_the_append_is_noticed(client: Client, monkeypatch) -> None:
    def ends_meanwhile(*_) -> bool:
        ended(6, 0, aborted=True, goes_on=False, client=client)
        return True

    monkeypatch.setattr(client.coordinator, "is_verified_here", ends_meanwhile)
    client.receive(frame(0))
    assert answers_of(client) == [(ErrorCode.INVALID_TXN_STATE, -1)]
    assert (log_of(client).log_end_offset, log_of(client).last_stable_offset) == (2, 2)


def test_a_second_frame_after_a_wrong_one_is_judged_alone(client: Client) -> None:
    client.receive(frame(0) + frame(0) + frame(5) + frame(1))
    assert answers_of(client) == [(0, 1), (0, 1), (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), (0, 2)]
    assert client.in_runs == len(frame(0)) + len(frame(1))


def test_a_run_of_a_transaction_waits_for_followers(tmp_path: Path) -> None:
    client = started(tmp_path, (BROKER, OTHER_BROKER))
    client.receive(frame(0, acks=-1) + frame(1, acks=-1))
    assert client.in_runs == 2 * len(frame(0))
    assert not client.connection.outbound.parts
    client.broker.follow(3)
    assert answers_of(client) == [(0, 1), (0, 2)]


def test_a_run_of_a_transaction_expires_after_its_timeout(tmp_path: Path) -> None:
    client = started(tmp_path, (BROKER, OTHER_BROKER))
    client.receive(frame(0, acks=-1, timeout_ms=500))
    client.broker.pass_time(499)
    assert not client.connection.outbound.parts
    client.broker.pass_time(2)
    assert answers_of(client) == [(ErrorCode.REQUEST_TIMED_OUT, 1)]


@pytest.mark.parametrize("version", [7, 9])
@pytest.mark.parametrize("name", ["", "payments"])
def test_the_timeout_is_found_behind_a_transactional_id(version: int, name: str) -> None:
    frames = bytearray(frame(0, version=version, name=name, timeout_ms=77) * 2)
    assert common_timeout_ms(frames, 0, len(frames), len(name)) == 77
