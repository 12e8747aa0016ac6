"""A slice that would have to be read from a disk is sent by an I/O thread, and delays no other client."""

from __future__ import annotations

import errno
import os
import random
import threading
from contextlib import suppress

import pytest

from klog.protocol.file_slice import FileSlice
from klog.server.network import page_cache
from klog.server.network.outbound import Outbound
from klog.server.network.page_cache import is_cached
from klog.storage.log.cold_reads import ProbedFile
from tests.server.network.servers import (
    CREATE_TOPICS,
    METADATA,
    TIMEOUT_S,
    Calling,
    Client,
    frame,
    running,
)
from tests.waiting import eventually

SIZE = 3_000_000


class Segment:
    """A file that knows which threads have used its descriptor."""

    def __init__(self, path) -> None:
        self.file = path.open("rb")
        self.threads: set[str] = set()

    def fileno(self) -> int:
        self.threads.add(threading.current_thread().name.rpartition("-")[0])
        return self.file.fileno()


@pytest.fixture
def content():
    return random.Random(3).randbytes(SIZE)


@pytest.fixture
def segment(tmp_path, content):
    (tmp_path / "segment").write_bytes(content)
    made = Segment(tmp_path / "segment")
    yield made
    made.file.close()


def uncached(part: FileSlice) -> bool:
    """Nothing is cached."""
    return False


def slices(segment: Segment, sizes=(SIZE,)):
    def handle(request):
        parts = [b"<"]
        for size in sizes:
            parts += [FileSlice(segment, 0, size), b"|"]
        request.respond(parts)

    return Calling(handle)


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(
    ("probe", "expected"),
    [(uncached, "klog-io"), (lambda part: True, "klog-network")],
    ids=["cold", "cached"],
)
def test_a_cold_slice_is_sent_by_an_io_thread_and_a_cached_one_where_it_was_asked_for(
    segment, content, tls, probe, expected
):
    options = {"tls": tls, "is_cached": probe, "bulk_threads": 0}
    with running(slices(segment), **options) as server, Client(server, tls=tls) as client:
        for number in range(3):
            client.send(frame(b"", number))
            assert client.receive() == (number, b"<" + content + b"|")
    assert segment.threads == {expected}


@pytest.mark.parametrize("size", [1, 1_000, 16_384])
def test_a_small_cold_slice_is_read_by_an_io_thread_too(segment, content, size):
    handler = slices(segment, (size, size))
    with running(handler, is_cached=uncached) as server, Client(server) as client:
        client.send(frame(b""))
        assert client.receive() == (1, b"<" + 2 * (content[:size] + b"|"))
    assert segment.threads == {"klog-io"}


def test_pipelined_answers_keep_their_order_around_cold_slices(segment, content):
    def handle(request):
        if request.body == b"slice":
            request.respond([FileSlice(segment, 0, SIZE)])
        elif request.body == b"later":
            threading.Timer(0.001, request.respond, [[bytes(request.body)]]).start()
        else:
            request.respond([bytes(request.body)])

    bodies = [
        b"slice",
        b"a",
        b"later",
        b"slice",
        b"slice",
        bytes(100_000),
        b"b",
        b"slice",
        b"later",
        b"slice",
    ]
    keys = [METADATA if number % 3 else CREATE_TOPICS for number in range(len(bodies))]
    frames = [
        frame(body, number, key, 4) for number, (body, key) in enumerate(zip(bodies, keys, strict=True))
    ]
    with running(Calling(handle), is_cached=uncached) as server, Client(server) as client:
        client.send(b"".join(frames))
        for number, body in enumerate(bodies):
            assert client.receive() == (number, content if body == b"slice" else body)


def test_an_answer_that_comes_while_an_io_thread_sends_is_sent_after_it(segment, content):
    handled = []
    parked = []

    def handle(request):
        if request.body == b"slice":
            request.respond([FileSlice(segment, 0, SIZE)])
        else:
            parked.append(request)
            handled.append(request.correlation_id)

    def answer_parked() -> None:
        with suppress(IndexError):
            parked.pop().respond([b"meanwhile"])

    def answers_meanwhile() -> int:
        # The I/O thread is about to send the slice.
        answer_parked()
        return Segment.fileno(segment)

    with running(Calling(handle), is_cached=uncached) as server, Client(server) as client:
        segment.fileno = answers_meanwhile
        for number in range(0, 40, 2):
            client.send(frame(b"slice", number) + frame(b"park", number + 1))
            assert client.receive() == (number, content)
            eventually(lambda number=number: number + 1 in handled)
            answer_parked()
            assert client.receive() == (number + 1, b"meanwhile")


def test_others_are_served_while_a_disk_is_slow(segment, content):
    reading, go_on = threading.Event(), threading.Event()

    def slow() -> int:
        reading.set()
        assert go_on.wait(TIMEOUT_S)
        return Segment.fileno(segment)

    def handle(request):
        request.respond([FileSlice(segment, 0, SIZE) if request.body == b"slice" else b"fine"])

    segment.fileno = slow
    with (
        running(Calling(handle), is_cached=uncached) as server,
        Client(server) as cold,
        Client(server) as other,
    ):
        cold.send(frame(b"slice"))
        assert reading.wait(TIMEOUT_S)
        assert other.ask(b"x" * 4) == b"fine"
        go_on.set()
        assert cold.receive() == (1, content)


def test_a_client_may_disconnect_before_its_cold_slice_is_sent(segment):
    with running(slices(segment), is_cached=uncached) as server:
        for _ in range(20):
            with Client(server) as client:
                client.send(frame(b""))
        eventually(lambda: server.counts.total == 0)


def test_a_cold_file_that_ends_early_costs_the_connection(segment, caplog):
    with running(slices(segment, (SIZE + 1,)), is_cached=uncached) as server, Client(server) as client:
        client.send(frame(b""))
        with pytest.raises((EOFError, ConnectionError)):
            client.receive()
        eventually(lambda: server.counts.total == 0)
    assert "the file ends before the records" in caplog.text


def test_what_is_before_a_cold_slice_is_sent_without_waiting(segment):
    class Sink:
        def __init__(self) -> None:
            self.taken = b""

        def sendmsg(self, buffers, ancillary=(), flags=0):
            self.taken += b"".join(buffers)
            return sum(map(len, buffers))

    outbound, sink = Outbound(tls=False, is_cached=uncached), Sink()
    outbound.add(b"head")
    outbound.add(FileSlice(segment, 0, SIZE))
    assert not outbound.flush(sink)
    assert outbound.is_cold
    assert (sink.taken, outbound.size_bytes) == (b"head", SIZE)


def drop(segment: Segment) -> None:
    os.fsync(segment.file.fileno())
    os.posix_fadvise(segment.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_the_page_cache_is_asked_without_waiting(segment, content):
    whole = FileSlice(segment, 0, SIZE)
    segment.file.read()
    assert is_cached(whole)

    def dropped() -> bool:
        drop(segment)
        return not is_cached(whole)

    if not hasattr(os, "RWF_NOWAIT") or not any(dropped() for _ in range(100)):
        pytest.skip("pages of this file system cannot be dropped or asked for")
    with running(slices(segment)) as server, Client(server) as client:
        eventually(dropped)
        segment.threads.clear()
        client.send(frame(b""))
        assert client.receive() == (1, b"<" + content + b"|")
        assert "klog-io" in segment.threads
    eventually(lambda: is_cached(whole))


def test_without_the_call_every_slice_counts_as_cached(segment, monkeypatch):
    drop(segment)
    monkeypatch.setattr(page_cache, "_NOWAIT", None)
    assert is_cached(FileSlice(segment, 0, SIZE))


def test_a_slice_that_cannot_be_read_counts_as_cached(segment):
    segment.file.close()
    assert is_cached(FileSlice(segment.file, 0, 100))


def test_a_file_system_that_cannot_say_is_asked_once_for_each_file(segment, monkeypatch):
    class Probed(ProbedFile):
        def fileno(self) -> int:
            return segment.fileno()

    def refuse(*_):
        asked.append(1)
        raise OSError(errno.EOPNOTSUPP, "not supported")

    asked: list[int] = []
    monkeypatch.setattr(page_cache, "_NOWAIT", 8)
    monkeypatch.setattr(os, "preadv", refuse, raising=False)
    first, second = Probed(), Probed()
    assert all(is_cached(FileSlice(file, 0, SIZE)) for file in (first, first, second))
    assert len(asked) == 2
