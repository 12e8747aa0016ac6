"""Tasks become due in the order of their times, or wait for other requests; connections are muted until a
deadline. The clock is given.
"""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.server.network.deadlines import Deadlines, PutOffTasks, Task
from tests.server.network.servers import CREATE_TOPICS, TIMEOUT_S, Calling, Client, frame, running
from tests.waiting import eventually

LARGE = 200_000


def nothing() -> None:
    """A task that does nothing."""


@given(times=st.lists(st.integers(0, 20)), now_ms=st.integers(0, 20))
def test_tasks_become_due_in_the_order_of_their_times_and_then_as_they_came(times, now_ms):
    deadlines = Deadlines()
    tasks = [(at_ms, Task(lambda: None)) for at_ms in times]
    for at_ms, task in tasks:
        deadlines.schedule(at_ms, task)
    expected = [task for at_ms, task in sorted(tasks, key=lambda each: each[0]) if at_ms <= now_ms]
    assert deadlines.take_due(now_ms) == expected
    assert len(deadlines) == len(times) - len(expected)
    assert deadlines.take_due(now_ms) == []


def test_the_wait_lasts_until_the_first_deadline_and_no_longer_than_is_given():
    deadlines = Deadlines()
    assert deadlines.wait_ms(100, 1000) == 1000
    deadlines.schedule(5000, Task(nothing))
    assert deadlines.wait_ms(100, 1000) == 1000
    deadlines.schedule(700, Task(nothing))
    assert deadlines.wait_ms(100, 1000) == 600
    assert deadlines.wait_ms(900, 1000) == 0


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


class Throttling(Calling):
    """Answers with the body; a body that begins with `slow` throttles its connection for 5 s."""

    def __init__(self) -> None:
        super().__init__(self.serve)
        self.handled: list[int] = []
        self.parked: list = []

    def serve(self, request) -> None:
        self.handled.append(request.correlation_id)
        kind = bytes(request.body[:4])
        if kind != b"fast":
            request.throttle_ms = 5_000
        if kind == b"park":
            self.parked.append(request)
        else:
            request.respond(None if kind == b"none" else [bytes(request.body)])

    def answer_parked(self) -> None:
        eventually(lambda: len(self.parked) == 1)
        self.parked.pop().respond([b"parked"])


def rounds(other: Client, count: int = 3) -> None:
    """The server's thread goes through its loop for another client, some times."""
    for number in range(count):
        other.ask(b"fast", 1000 + number)


@pytest.mark.parametrize(
    ("body", "options"),
    [
        (b"slow", {}),
        (b"slow", {"api_key": CREATE_TOPICS, "version": 4}),
        (b"slow" + bytes(LARGE), {}),
        (b"park", {}),
        (b"park" + bytes(LARGE), {}),
    ],
)
def test_a_throttled_connection_is_answered_at_once_and_not_read_until_its_time_is_over(body, options):
    clock, handler = Clock(), Throttling()
    with running(handler, clock_ms=clock) as server, Client(server) as client, Client(server) as other:
        client.send(frame(body, 1, **options) + frame(b"fast", 2) + frame(b"fast", 3))
        if body.startswith(b"park"):
            handler.answer_parked()
        assert client.receive()[0] == 1
        client.send(frame(b"fast", 4))
        clock.now_ms = 4_999
        rounds(other)
        assert [each for each in handler.handled if each < 1000] == [1]
        clock.now_ms = 5_000
        rounds(other)
        assert [client.receive()[0] for _ in range(3)] == [2, 3, 4]


def test_a_request_without_an_answer_throttles_too():
    clock, handler = Clock(), Throttling()
    with running(handler, clock_ms=clock) as server, Client(server) as client, Client(server) as other:
        client.send(frame(b"none", 1) + frame(b"fast", 2))
        eventually(lambda: handler.handled == [1])
        rounds(other)
        assert [each for each in handler.handled if each < 1000] == [1]
        clock.now_ms = 5_000
        rounds(other)
        assert client.receive()[0] == 2


def test_a_throttled_connection_that_has_not_read_its_answer_goes_on_after_both():
    clock = Clock()
    handled = []

    def serve(request) -> None:
        handled.append(request.correlation_id)
        request.throttle_ms = 5_000 if request.body == b"slow" else 0
        request.respond([bytes(20_000_000) if request.body == b"slow" else b"fast"])

    with running(Calling(serve), clock_ms=clock) as server, Client(server) as client, Client(server) as other:
        client.send(frame(b"slow", 1) + frame(b"fast", 2))
        eventually(lambda: handled == [1])
        clock.now_ms = 5_000
        rounds(other)
        assert 2 not in handled
        assert client.receive()[0] == 1
        assert client.receive() == (2, b"fast")


def test_a_throttled_connection_is_not_idle():
    clock, handler = Clock(), Throttling()
    limits = {"connections_max_idle_ms": 2_000}
    with (
        running(handler, clock_ms=clock, **limits) as server,
        Client(server) as client,
        Client(server) as other,
    ):
        other.ask(b"fast")
        client.ask(b"slow")
        clock.now_ms = 4_000
        # The other one is idle: it is closed when all connections are checked.
        assert other.is_closed()
        client.send(frame(b"fast", 2))
        clock.now_ms = 5_000
        assert client.receive() == (2, b"fast")


def test_a_client_may_disconnect_while_it_is_throttled():
    clock, handler = Clock(), Throttling()
    with running(handler, clock_ms=clock) as server, Client(server) as other:
        with Client(server) as client:
            client.ask(b"slow")
        clock.now_ms = 5_000
        rounds(other)
        eventually(lambda: server.counts.total == 1)
        assert other.ask(b"fast") == b"fast"


def test_a_throttled_connection_does_not_delay_the_stop():
    patient = {"clock_ms": Clock(), "stop_timeout_ms": 2 * TIMEOUT_S * 1000}
    with running(Throttling(), **patient) as server, Client(server) as client:
        client.ask(b"slow")
        started_s = time.monotonic()
        server.stop()
        assert time.monotonic() - started_s < TIMEOUT_S
        assert client.is_closed()


def test_tasks_are_put_off_until_nothing_is_to_be_read_or_a_millisecond_has_passed():
    put_off, tasks = PutOffTasks(), [Task(nothing), Task(nothing)]
    assert put_off.take(0, is_idle=True) == []
    for add_ms, task in zip((100, 101), tasks, strict=True):
        put_off.add(task, add_ms)
    assert put_off.take(101, is_idle=False) == []
    assert len(put_off) == 2
    assert put_off.take(101, is_idle=True) == tasks
    assert len(put_off) == 0
    put_off.add(tasks[0], 200)
    assert put_off.take(201, is_idle=False) == []
    assert put_off.take(202, is_idle=False) == tasks[:1]


@pytest.mark.parametrize(("step_ms", "before"), [(0, 5), (1, 3)], ids=["nothing is left", "time is over"])
def test_what_is_to_be_done_soon_is_done_after_the_requests_that_wait_to_be_read(step_ms, before):
    """Each request sends the next one while it is handled, so that this one is there at the next look."""
    clock, handled = Clock(), []

    def serve(request) -> None:
        handled.append(request.correlation_id)
        clock.now_ms += step_ms
        if request.correlation_id == 0:
            request.connection.soon(lambda: (handled.append("soon"), request.respond([b""])))
        if request.correlation_id < 5:
            other.send(frame(b"", request.correlation_id + 1))
        if request.correlation_id:
            request.respond([b""])

    with (
        running(Calling(serve), clock_ms=clock) as server,
        Client(server) as client,
        Client(server) as other,
    ):
        other.ask(b"", 6)  # its connection is open then
        handled.clear()
        client.ask(b"", 0)
        assert [other.receive()[0] for _ in range(5)] == [1, 2, 3, 4, 5]
    assert handled.index("soon") == before + 1
