"""A fetcher thread: requests over its connection, waits after failures, and its end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from klog.drivers.fetching import FetchDriver, FetchListeners
from klog.protocol.errors import ConnectionLostError
from klog.replication.fetching.fetcher import Fetcher
from klog.replication.fetching.following import start_of
from klog.replication.fetching.values import AskEpochEnds, AskOffsets, EpochAsked, FetchSettings
from klog.server.fetching.fetcher_thread import FetcherThread
from klog.server.fetching.requests import send
from klog.server.handlers.data.list_offsets import ListOffsetsHandler
from klog.server.handlers.data.offsets_for_leader_epoch import OffsetsForLeaderEpochHandler
from klog.storage.log.scheduler import monotonic_ms
from tests.replication.fetching.parts import BOTH, KEY, Node, content
from tests.server.handlers.parts import BROKER, OTHER_BROKER, FakeRequest, batch
from tests.waiting import eventually


class Wire:
    """A connection to a node. While `is_cut`, nothing gets through."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.connected = False
        self.is_cut = False
        self.connects = 0
        self.closed = threading.Event()

    def connect(self) -> None:
        self.connects += 1
        if self.is_cut:
            raise ConnectionLostError("cut")
        self.closed.clear()
        self.connected = True

    def close(self) -> None:
        self.connected = False
        self.closed.set()

    def version_of(self, api_key: int, at_most: int | None = None) -> int:
        return {1: 17, 2: 9, 23: 4}[api_key] if at_most is None else at_most

    def request(
        self,
        api_key: int,
        version: int,
        body: Sequence[bytes],
        decode: Callable[[int, memoryview], object],
        timeout_ms: int | None = None,
    ) -> object:
        self.closed.wait(0.01)  # as far as the leader is
        if self.is_cut or not self.connected:
            self.close()
            raise ConnectionLostError("cut")
        sent = FakeRequest(api_key, version, memoryview(b"".join(body)))
        handlers = {
            1: self.node.handler,
            2: ListOffsetsHandler(self.node.lookup, self.node.clock),
            23: OffsetsForLeaderEpochHandler(self.node.lookup),
        }
        handlers[api_key].handle(sent)
        self.node.pass_time(500)  # what waits for records is answered now
        return decode(version, sent.answer)


class Copy:
    """Broker 2 copies from broker 1 in a thread."""

    def __init__(self, root: Path) -> None:
        self.leader, self.follower = Node(root / "a", BROKER), Node(root / "b", OTHER_BROKER)
        self.leader.lead(replicas=BOTH)
        self.follower.lead(leader=BROKER, replicas=BOTH)
        self.wire = Wire(self.leader)
        self.received: list[object] = []
        self.moved: list[object] = []
        self.truncated: list[object] = []
        driver = FetchDriver(
            lambda truncated: Fetcher(
                BROKER,
                FetchSettings(OTHER_BROKER, backoff_ms=20),
                self.follower.replicas,
                broker_epoch=lambda: 5,
                wall_clock_ms=self.follower.clock,
                truncated=truncated,
            ),
            FetchListeners(self.received.append, self.moved.extend, self.truncated.extend),
        )
        name = "ReplicaFetcherThread-0-1"
        self.thread = FetcherThread(name, driver, lambda: self.wire, monotonic_ms, 1000)
        self.thread.start()

    def add(self) -> None:
        start = start_of(self.follower.partition())
        assert start is not None
        self.thread.add({KEY: start})

    def agrees(self) -> bool:
        log = self.follower.log()
        return (
            content(log) == content(self.leader.log())
            and log.high_watermark == self.leader.log().log_end_offset
        )


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Copy]:
    copy = Copy(tmp_path)
    yield copy
    copy.thread.stop()
    copy.thread.join(60)
    assert not copy.thread.is_alive


def test_a_thread_copies_what_it_is_given_and_tells_what_consumers_may_read(copy: Copy) -> None:
    copy.leader.append(3)
    copy.add()
    eventually(copy.agrees)
    copy.leader.append(2)
    eventually(copy.agrees)
    # The thread tells it after it has changed the log.
    eventually(lambda: copy.moved.count(KEY) >= 2)
    eventually(lambda: copy.thread.driver.record_bytes == len(content(copy.leader.log())))
    eventually(lambda: sum(each[KEY] for each in list(copy.received)) == copy.thread.driver.record_bytes)
    assert copy.thread.requests > 2


def test_a_thread_goes_on_when_the_leader_is_back(copy: Copy, caplog) -> None:
    caplog.set_level("INFO")
    copy.add()
    copy.leader.append(1)
    eventually(copy.agrees)
    copy.wire.is_cut = True
    copy.leader.append(1)
    eventually(lambda: copy.wire.connects > 3)
    assert not copy.agrees()
    copy.wire.is_cut = False
    eventually(copy.agrees)
    eventually(lambda: "copies from broker 1 again" in caplog.text)
    assert caplog.text.count("waits for broker 1") == 1


def test_another_address_ends_the_wait_for_an_answer(copy: Copy) -> None:
    copy.add()
    copy.leader.append(1)
    eventually(copy.agrees)
    copy.thread.reconnect()
    copy.leader.append(1)
    eventually(copy.agrees)
    # What was on its way may still have come over the first connection.
    eventually(lambda: copy.wire.connects == 2)


@pytest.fixture
def connecting(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The thread is connecting to a host that does not answer before the event is set."""
    begun, answered = threading.Event(), threading.Event()
    connect = copy.wire.connect

    def connect_slowly() -> None:
        begun.set()
        assert answered.wait(60)
        connect()

    monkeypatch.setattr(copy.wire, "connect", connect_slowly)
    copy.leader.append(1)
    copy.add()
    assert begun.wait(60)
    yield answered
    answered.set()


def test_nothing_is_sent_on_a_connection_that_is_open_after_the_end(
    copy: Copy, connecting: threading.Event
) -> None:
    copy.thread.stop()
    connecting.set()
    copy.thread.join(60)
    assert not copy.thread.requests
    assert not copy.wire.connected


def test_nothing_is_sent_on_a_connection_to_an_address_that_has_changed_meanwhile(
    copy: Copy, connecting: threading.Event
) -> None:
    copy.thread.reconnect()
    connecting.set()
    eventually(copy.agrees)
    assert copy.wire.connects == 2


def test_nothing_is_appended_after_the_removal(copy: Copy) -> None:
    copy.add()
    copy.leader.append(1)
    eventually(copy.agrees)
    (start,) = copy.thread.remove([KEY]).values()
    assert start.offset == 1
    assert copy.thread.driver.is_idle
    copy.leader.append(1)
    requests = copy.thread.requests
    copy.add()
    eventually(copy.agrees)
    assert copy.thread.requests > requests


def test_truncated_logs_are_told(copy: Copy) -> None:
    copy.follower.lead(leader=OTHER_BROKER, epoch=1, replicas=BOTH, isr=(2,))
    lost = batch(value=b"lost")
    copy.follower.partition().append(memoryview(lost), 1, copy.follower.clock())
    copy.leader.lead(epoch=2, replicas=BOTH)
    copy.follower.lead(leader=BROKER, epoch=2, replicas=BOTH)
    copy.leader.append(1)
    copy.add()
    eventually(copy.agrees)
    eventually(lambda: copy.truncated)
    assert copy.truncated == [copy.follower.log()]


def test_a_defect_does_not_end_the_thread(copy: Copy, monkeypatch, caplog) -> None:
    monkeypatch.setattr(copy.wire, "version_of", lambda *_: 1 // 0)
    copy.add()
    eventually(lambda: "unexpected error" in caplog.text)
    monkeypatch.undo()
    copy.leader.append(1)
    eventually(copy.agrees)


def test_the_other_questions_are_asked_as_a_replica(copy: Copy) -> None:
    copy.leader.append(3)
    copy.wire.connect()
    asked = AskEpochEnds(OTHER_BROKER, {KEY: EpochAsked(0, 0)})
    assert send(copy.wire, asked, 1000) == {KEY: (0, 0, 3)}
    assert send(copy.wire, AskOffsets(OTHER_BROKER, -2, {KEY: 0}), 1000) == {KEY: (0, 0)}
    # The log's end, not the high watermark, which the follower has not moved yet.
    assert copy.leader.log().high_watermark == 0
    assert send(copy.wire, AskOffsets(OTHER_BROKER, -1, {KEY: 0}), 1000) == {KEY: (0, 3)}
