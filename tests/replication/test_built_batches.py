"""Batches that the broker has built leave the same log and outcomes as by the general append."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats.names import TopicPartition
from klog.kernel.batch_builder import RecordData, build_batch, build_single
from klog.kernel.markers import Marker, build_marker
from klog.protocol.error_codes import ErrorCode
from klog.replication.internal_append import Appended, InternalAppends
from klog.replication.partition import PartitionError
from klog.storage.log.append_values import AppendError
from klog.storage.log.built_batch import BuiltBatch
from tests.server.handlers.parts import BROKER, OTHER_BROKER, TOPIC, Broker, set_isr
from tests.server.handlers.test_produce_runs import CONFIGS, log_state

PARTITION = TopicPartition(TOPIC, 0)
TIMEOUT_MS = 1000
PRODUCERS = (-7, 5, 6)


class Side:
    """A broker that leads a partition, and one of its coordinators; `fast` appends batches as built ones."""

    def __init__(self, root: Path, configs: dict[str, str], replicas: tuple[int, ...], *, fast: bool) -> None:
        root.mkdir(exist_ok=True)
        self.fast = fast
        self.broker = Broker(root, {TOPIC: configs})
        self.replicas = replicas
        self.broker.lead(replicas=replicas)
        self.counted: list[tuple[str, int, int]] = []
        self.outcomes: list[Appended] = []
        self.refused: list[str] = []
        self.woken: list[object] = []
        self.broker.fetch_purgatory.check_and_complete = self.woken.append
        self.appends = InternalAppends(
            self.broker.replicas,
            self.broker.produce_purgatory,
            self.broker.lookup.known,
            clock_ms=self.broker.clock,
            timer_ms=self.broker.clock,
            count=lambda *traffic: self.counted.append(traffic),
        )

    def append(self, batch: BuiltBatch, leader_epoch: int = -1) -> None:
        done = self.outcomes.append
        epoch = {"leader_epoch": leader_epoch}
        if self.fast:
            self.appends.append_built(PARTITION, batch, done, timeout_ms=TIMEOUT_MS, **epoch)
        else:
            view = batch.view()
            self.appends.append_records(PARTITION, view, done, acks=-1, timeout_ms=TIMEOUT_MS, **epoch)

    @property
    def log(self):
        return self.broker.replicas.partitions[PARTITION].log

    def results(self) -> tuple[object, ...]:
        """All that is to be equal."""
        log = self.log
        transactions = log.producers.first_unstable_offset, log.last_stable_offset, log.recovery_point
        aborted = [segment.aborted() for segment in log.segments]
        seen = self.outcomes, self.refused, self.counted, self.woken
        return log_state(log), transactions, aborted, seen, len(self.broker.timer)


class Records(NamedTuple):
    """A coordinator's records; `age_ms` is how old they are."""

    value: bytes
    age_ms: int
    records: int
    leader_epoch: int

    def apply(self, side: Side) -> None:
        now_ms = side.broker.clock() - self.age_ms
        if self.records == 1:
            data = build_single(now_ms, b"key", self.value)
        else:
            data = build_batch([RecordData(each, now_ms, b"key", None) for each in range(self.records)])
        side.append(BuiltBatch(data, now_ms, self.records), self.leader_epoch)


class Ends(NamedTuple):
    """A marker ends a transaction."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    aborted: bool

    def apply(self, side: Side) -> None:
        marker = Marker(self.aborted, self.coordinator_epoch, side.broker.clock())
        data = build_marker(self.producer_id, self.epoch, marker)
        batch = BuiltBatch(
            data,
            marker.timestamp,
            marker=marker,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
        )
        side.append(batch)


class Writes(NamedTuple):
    """A client writes in a transaction."""

    producer_id: int
    epoch: int
    sequence: int

    def apply(self, side: Side) -> None:
        try:
            side.broker.append(
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=self.sequence,
                is_transactional=True,
            )
        except (AppendError, PartitionError) as refused:
            side.refused.append(str(refused.error))


class Happens(NamedTuple):
    """Something else happens."""

    what: str

    def apply(self, side: Side) -> None:
        broker = side.broker
        if self.what == "follower" and OTHER_BROKER in side.replicas:
            broker.follow(side.log.log_end_offset)
        elif self.what == "alone":
            set_isr(broker.replicas.partitions[PARTITION], BROKER)
        elif self.what == "time":
            broker.pass_time(TIMEOUT_MS + 1)
        elif self.what == "deposed":
            broker.lead(leader=OTHER_BROKER, epoch=1, replicas=(BROKER, OTHER_BROKER))


EPOCHS = st.integers(0, 2)
EVENTS = st.one_of(
    st.builds(
        Records,
        st.binary(max_size=100),
        st.sampled_from((0, 0, 0, 5, 2000)),
        st.sampled_from((1, 1, 3)),
        st.sampled_from((-1, 0, 1)),
    ),
    st.builds(Ends, st.sampled_from(PRODUCERS), EPOCHS, EPOCHS, st.booleans()),
    st.builds(Writes, st.sampled_from(PRODUCERS[1:]), EPOCHS, st.integers(0, 3)),
    st.builds(Happens, st.sampled_from(("follower", "follower", "follower", "alone", "time", "deposed"))),
)


@given(
    st.lists(EVENTS, max_size=25),
    CONFIGS,
    st.sampled_from(("1", "2")),
    st.sampled_from(("0", "100", "300")),
    st.sampled_from(((BROKER,), (BROKER, OTHER_BROKER))),
)
def test_built_batches_are_appended_as_all_others(events, configs, min_isr, interval, replicas) -> None:
    configs = {**configs, "min.insync.replicas": min_isr, "index.interval.bytes": interval}
    with tempfile.TemporaryDirectory() as root:
        one = Side(Path(root, "built"), configs, replicas, fast=True)
        other = Side(Path(root, "general"), configs, replicas, fast=False)
        for event in (*events, Happens("follower"), Happens("time")):
            for side in (one, other):
                event.apply(side)
        assert one.results() == other.results()


@pytest.fixture
def side(tmp_path: Path) -> Side:
    """A log with a record: what begins a segment takes the general path."""
    side = Side(tmp_path, {}, (BROKER,), fast=True)
    Records(b"v", 0, 1, 0).apply(side)
    return side


class OnlyBuilt(InternalAppends):
    """Takes no general path."""

    def append_records(self, *_: object, **__: object) -> None:
        raise AssertionError("the general path is taken")


def test_a_usual_batch_does_not_take_the_general_path(side: Side) -> None:
    Writes(5, 0, 0).apply(side)
    broker = side.broker
    side.appends = OnlyBuilt(
        broker.replicas,
        broker.produce_purgatory,
        broker.lookup.known,
        clock_ms=broker.clock,
        timer_ms=broker.clock,
    )
    Records(b"v", 0, 1, 0).apply(side)
    Ends(5, 0, 0, aborted=False).apply(side)
    assert side.outcomes == [Appended(ErrorCode.NONE, each, each) for each in (0, 2, 3)]
    assert side.log.last_stable_offset == 4


def test_a_disk_that_fails_is_an_outcome(side: Side, monkeypatch) -> None:
    def broken(*_: object) -> int:
        raise OSError("no space")

    monkeypatch.setattr(os, "pwrite", broken)
    Records(b"v", 0, 1, 0).apply(side)
    assert side.outcomes[1:] == [Appended(ErrorCode.KAFKA_STORAGE_ERROR)]
    assert len(side.broker.logs.background.failures) == 1


def test_a_partition_that_is_not_here_is_an_outcome(side: Side) -> None:
    batch = BuiltBatch(build_single(0, b"k", b"v"), 0)
    side.appends.append_built(
        TopicPartition("unknown", 0), batch, side.outcomes.append, timeout_ms=TIMEOUT_MS
    )
    assert side.outcomes[1:] == [Appended(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_a_built_batch_is_one_batch(side: Side) -> None:
    with pytest.raises(IndexError):
        BuiltBatch(build_single(0, b"k", b"v"), 0).batch(1)
