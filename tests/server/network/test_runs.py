"""A handler answers the usual frames of one read together, before the general path sees the rest."""

from __future__ import annotations

import struct

import pytest

from klog.formats.errors import FormatError
from klog.security.principal import ANONYMOUS, KafkaPrincipal
from tests.server.network.servers import CREATE_TOPICS, METADATA, Client, Echo, frame, running
from tests.waiting import eventually


class Running(Echo):
    """Answers a run of Produce frames with `run` and what they carry; Metadata and others it leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[int] = []
        self.general: list[bytes] = []

    def handle_run(self, connection, buffer, start, end):
        frames = 0
        while end - start >= 14:
            size, key, _, correlation_id = struct.unpack_from(">ihhi", buffer, start)
            if key != 0 or start + 4 + size > end:
                break
            body = bytes(buffer[start + 14 : start + 4 + size])
            self.look_at(body)
            connection.outbound.add(struct.pack(">ii", 7 + len(body), correlation_id) + b"run" + body)
            start += 4 + size
            frames += 1
        if frames:
            self.runs.append(frames)
        return start

    def look_at(self, body: bytes) -> None:
        if body == b"oops":
            raise LookupError
        if body == b"broken":
            raise FormatError("it is broken")

    def answer(self, request):
        self.general.append(bytes(request.body))
        return super().answer(request)


def test_the_frames_of_one_read_are_answered_in_one_call():
    handler = Running()
    with running(handler) as server, Client(server) as client:
        client.send(b"".join(frame(b"%d" % number, number) for number in range(50)))
        assert [client.receive() for _ in range(50)] == [(number, b"run%d" % number) for number in range(50)]
    assert sum(handler.runs) == 50
    assert len(handler.runs) < 50
    assert handler.general == []


def test_what_a_run_leaves_takes_the_general_path_and_the_next_run_begins_after_it():
    handler = Running()
    keys = [0, 0, METADATA, 0, CREATE_TOPICS, 0, METADATA, METADATA, 0, 0]
    with running(handler) as server, Client(server) as client:
        client.send(b"".join(frame(b"x", number, key, 4) for number, key in enumerate(keys)))
        expected = [(number, b"x" if key else b"runx") for number, key in enumerate(keys)]
        assert [client.receive() for _ in keys] == expected
    assert len(handler.general) == 4


def test_a_frame_that_comes_in_pieces_is_left_until_it_is_whole():
    handler = Running()
    with running(handler) as server, Client(server) as client:
        raw = frame(b"first", 1) + frame(b"second", 2)
        for at in range(len(raw)):
            client.send(raw[at : at + 1])
        assert client.receive() == (1, b"runfirst")
        assert client.receive() == (2, b"runsecond")
    assert handler.general == []


def test_large_frames_and_frames_behind_them_keep_their_order():
    with running(Running()) as server, Client(server) as client:
        client.send(frame(b"a", 1) + frame(bytes(200_000), 2) + frame(b"b", 3))
        assert client.receive() == (1, b"runa")
        assert client.receive() == (2, bytes(200_000))
        assert client.receive() == (3, b"runb")


def test_while_an_answer_is_outstanding_no_run_begins():
    parked = []

    class Parking(Running):
        def handle(self, request):
            parked.append(request)

    handler = Parking()
    with running(handler) as server, Client(server) as client:
        client.send(frame(b"a", 1) + frame(b"later", 2, METADATA, 4) + frame(b"b", 3))
        assert client.receive() == (1, b"runa")
        eventually(lambda: len(parked) == 1)
        assert handler.runs == [1]
        parked[0].respond([b"now"])
        assert client.receive() == (2, b"now")
        assert client.receive() == (3, b"runb")


def test_answers_larger_than_what_is_collected_are_sent_in_between():
    class Much(Running):
        def handle_run(self, connection, buffer, start, end):
            if end - start < 14:
                return start
            size, correlation_id = struct.unpack_from(">i4xi", buffer, start)
            connection.outbound.add(struct.pack(">ii", 4 + 300_000, correlation_id) + bytes(300_000))
            return start + 4 + size

    with running(Much()) as server, Client(server) as client:
        client.send(b"".join(frame(b"", number) for number in range(20)))
        for number in range(20):
            assert client.receive() == (number, bytes(300_000))


@pytest.mark.parametrize(("body", "logged"), [(b"oops", "LookupError"), (b"broken", "it is broken")])
def test_what_a_run_raises_costs_the_connection_and_no_thread(body, logged, caplog):
    with running(Running()) as server, Client(server) as client, Client(server) as other:
        client.send(frame(b"good", 1) + frame(body, 2))
        assert client.receive() == (1, b"rungood")
        assert client.is_closed()
        assert other.ask(b"fine") == b"runfine"
    assert logged in caplog.text


def test_with_a_bound_for_requests_memory_every_frame_takes_the_general_path():
    handler = Running()
    with running(handler, queued_max_request_bytes=1_000_000) as server, Client(server) as client:
        assert client.ask(b"x") == b"x"
    assert handler.runs == []


def test_who_has_not_authenticated_is_anonymous():
    seen = []

    class Looking(Echo):
        def answer(self, request):
            seen.append(request.principal)
            return super().answer(request)

    with running(Looking()) as server, Client(server) as client:
        client.ask(b"x")
    assert seen == [ANONYMOUS] == [KafkaPrincipal("User", "ANONYMOUS")]
    assert str(seen[0]) == "User:ANONYMOUS"


def test_a_frame_above_the_limit_is_refused_and_not_given_to_the_handler():
    handler = Running()
    with running(handler, request_max_bytes=100) as server, Client(server) as client:
        client.send(frame(bytes(200), 1))
        assert client.is_closed()
    assert handler.runs == []
