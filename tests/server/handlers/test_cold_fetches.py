"""A fetch of what is not in the page cache: a thread that may wait loads it, without the log's lock."""

from __future__ import annotations

import errno
import os

import pytest

from klog.protocol.fetch_request import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from klog.protocol.fetch_response import decode_fetch_response
from klog.server.handlers.data.fetch import FetchHandler
from klog.server.handlers.data.fetch_sessions import FetchSessions
from klog.storage.log import cold_reads
from tests.server.handlers.parts import TOPIC, Broker, FakeRequest

VERSION = 12
COUNT = 30


class Disk:
    """A page cache that is empty: reads that may not wait find only what was read before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cached: set[tuple[str, int]] = set()
        self.always_cold = False
        self.pread = os.pread
        monkeypatch.setattr(cold_reads, "_NO_WAIT", 8)
        monkeypatch.setattr(os, "pread", self.read)
        monkeypatch.setattr(os, "preadv", self.read_cached, raising=False)

    def read(self, descriptor: int, size_bytes: int, position: int) -> bytes:
        self.cached.add((self.path(descriptor), position))
        return self.pread(descriptor, size_bytes, position)

    def read_cached(self, descriptor: int, buffers, position: int, flags: int) -> int:
        assert flags == 8
        if self.always_cold or (self.path(descriptor), position) not in self.cached:
            raise BlockingIOError(errno.EAGAIN, "cold")
        data = self.pread(descriptor, len(buffers[0]), position)
        buffers[0][: len(data)] = data
        return len(data)

    @staticmethod
    def path(descriptor: int) -> str:
        return os.readlink(f"/proc/self/fd/{descriptor}")


class Waiting:
    """The thread that may wait: its work is done when the test says so."""

    def __init__(self) -> None:
        self.work = []

    def __call__(self, request, work) -> None:
        self.work.append((request, work))

    def run(self) -> None:
        for request, work in self.work:
            work(request)


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


@pytest.fixture
def handler(tmp_path, waiting: Waiting) -> FetchHandler:
    """Serves a log of several segments, of which all but the active one have been indexed densely."""
    configs = {"segment.bytes": "1000", "index.interval.bytes": "0"}
    broker = Broker(tmp_path, {TOPIC: configs})
    broker.lead()
    broker.append(COUNT)
    sessions = FetchSessions(10, broker.clock, lambda: 1)
    handler = FetchHandler(
        broker.lookup, sessions, broker.fetch_purgatory, broker.clock, 1 << 20, broker.topic_stats, waiting
    )
    assert len(broker.logs.logs[TOPIC, 0].segments) > 2
    return handler


def fetch(offset: int, *, on_io_thread: bool = False) -> FakeRequest:
    topic = FetchTopic(TOPIC, None, [FetchPartition(0, -1, offset, -1, -1, 1 << 20)])
    body = encode_fetch_request(VERSION, FetchRequest(0, 1, 1 << 20, 0, [topic]))
    return FakeRequest(1, VERSION, memoryview(body), on_io_thread=on_io_thread)


def first_offset(request: FakeRequest) -> int:
    ((_, _, (partition,)),) = decode_fetch_response(VERSION, request.answer).topics
    assert not partition.error_code
    return int.from_bytes(partition.records[:8], "big")


def test_a_network_thread_leaves_cold_reads_to_another(handler, waiting, monkeypatch) -> None:
    Disk(monkeypatch)
    request = fetch(3)
    handler.handle(request)
    assert not request.answered
    waiting.run()
    assert first_offset(request) == 3


def test_what_has_been_loaded_is_read_at_once(handler, waiting, monkeypatch) -> None:
    disk = Disk(monkeypatch)
    handler.handle(fetch(3))
    waiting.run()
    loaded = len(disk.cached)
    request = fetch(3)
    handler.handle(request)
    assert (first_offset(request), len(waiting.work)) == (3, 1)
    assert len(disk.cached) == loaded


def test_the_log_can_be_appended_to_while_the_disk_is_read(handler, waiting, monkeypatch) -> None:
    disk = Disk(monkeypatch)
    handler.handle(fetch(3))
    log = handler.lookup.replicas.partitions[TOPIC, 0].log
    read = disk.read

    def observed(*place) -> bytes:
        assert not log.lock._is_owned()
        return read(*place)

    monkeypatch.setattr(os, "pread", observed)
    waiting.run()


def test_an_io_thread_waits_itself(handler, waiting, monkeypatch) -> None:
    Disk(monkeypatch)
    request = fetch(3, on_io_thread=True)
    handler.handle(request)
    assert (first_offset(request), waiting.work) == (3, [])


def test_the_active_segment_is_not_cold_after_an_append(handler, waiting, monkeypatch) -> None:
    Disk(monkeypatch)
    request = fetch(COUNT)
    handler.handle(request)
    assert request.answered
    assert not waiting.work


def test_a_page_cache_that_keeps_nothing_is_no_endless_loop(handler, waiting, monkeypatch) -> None:
    Disk(monkeypatch).always_cold = True
    request = fetch(3)
    handler.handle(request)
    waiting.run()
    assert first_offset(request) == 3
