"""The ready-made requests are what they say, and the client that sends them does not count wrong answers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.request_frames import Answer, api_versions_frame, batch_of, fetch_frame, produce_frame
from benchmarks.request_loads import LOADS, Load, Prepared, Programs, WrongAnswerError
from klog.formats import record_batch
from klog.protocol.fetch_request import FetchPartition, decode_fetch_request
from klog.protocol.produce_request import decode_produce_request

# Size, API key, version, correlation id, client id of 5 bytes, no tagged fields.
_HEADER_BYTES = 4 + 8 + 7 + 1
_BATCH_BYTES = 200

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (cc)")


@pytest.mark.parametrize("total_bytes", [200, 16384, 131072, 524288, 1_000_000])
def test_a_batch_has_exactly_the_bytes_that_were_asked_for(total_bytes: int) -> None:
    batch = batch_of(total_bytes)
    assert len(batch) == total_bytes
    assert record_batch.parse(batch).magic == 2


def test_a_produce_frame_holds_its_batch() -> None:
    batch = batch_of(_BATCH_BYTES)
    frame = produce_frame("t", batch)
    assert len(frame) == 4 + int.from_bytes(frame[:4], "big")
    request = decode_produce_request(9, memoryview(frame)[_HEADER_BYTES:])
    assert (request.transactional_id, request.acks) == (None, 1)
    assert [(name, [(each[0], bytes(each[1]))]) for name, (each,) in request.topics] == [("t", [(0, batch)])]


def test_a_fetch_frame_asks_for_one_partition_without_a_session() -> None:
    frame = fetch_frame("t", 7, 1 << 20)
    assert len(frame) == 4 + int.from_bytes(frame[:4], "big")
    request = decode_fetch_request(12, memoryview(frame)[_HEADER_BYTES:])
    assert (request.max_bytes, request.session_id, request.session_epoch) == (1 << 20, 0, -1)
    (topic,) = request.topics
    assert topic.name == "t"
    assert topic.partitions == [FetchPartition(0, -1, 7, -1, -1, 1 << 20)]


def test_an_api_versions_frame_has_the_size_that_was_asked_for() -> None:
    assert len(api_versions_frame(100)) == 100


def test_the_names_of_loads_are_unique() -> None:
    assert len({load.name for load in LOADS}) == len(LOADS)


@contextmanager
def no_broker(programs: Programs, answer_bytes: int, mode: str) -> Iterator[int]:
    """The port of a running `no_broker`."""
    file = programs.scratch / "file"
    file.write_bytes(bytes(1 << 20) if mode == "send" else b"")
    process = subprocess.Popen(
        [str(programs.no_broker), str(answer_bytes), mode, str(file)], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def answered(programs: Programs, port: int, load: Load, frame: bytes, expected: Answer) -> int:
    """How many requests the client counts, of 1000 that it sends at most."""
    frames = programs.scratch / "frames"
    frames.write_bytes(frame)
    ready = Prepared(frames, expected, 0, port)
    command = programs.client_command(load, ready, seconds=60, requests_most=1000)
    return programs.run(command)["requests"]


@needs_compiler
@pytest.mark.parametrize(
    ("mode", "answer_bytes", "in_flight"),
    [("answer", 300, 16), ("append", 64, 5), ("send", 200_000, 1)],
)
def test_the_client_counts_every_answer(tmp_path: Path, mode: str, answer_bytes: int, in_flight: int) -> None:
    programs = Programs(tmp_path)
    load = Load("test", "test", "produce", _BATCH_BYTES, 8, in_flight)
    frame = produce_frame("t", batch_of(_BATCH_BYTES))
    with no_broker(programs, answer_bytes, mode) as port:
        assert answered(programs, port, load, frame, Answer((8,), answer_bytes)) == 1000
    if mode == "append":
        assert (tmp_path / "file").read_bytes().count(frame[12:]) == 1000


@needs_compiler
@pytest.mark.parametrize(
    ("expected", "complaint"),
    [
        (Answer((8,), least_bytes=65), "the size"),
        (Answer((7,)), "the error code"),
        (Answer((8,), offsets_rise=True), "the base offset"),
    ],
)
def test_the_client_stops_at_a_wrong_answer(tmp_path: Path, expected: Answer, complaint: str) -> None:
    # The byte before position 8 is the correlation id's last, which is not zero: it stands for an error code.
    programs = Programs(tmp_path)
    load = Load("test", "test", "produce", _BATCH_BYTES, 1, 1)
    frame = produce_frame("t", batch_of(_BATCH_BYTES))
    with no_broker(programs, 64, "append") as port, pytest.raises(WrongAnswerError, match=complaint):
        answered(programs, port, load, frame, expected)
