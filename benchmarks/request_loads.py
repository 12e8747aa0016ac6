"""The loads of `broker-requests`, and one run of one of them: on a broker, or with no broker at all.

`ready_frames.c` sends the requests and `no_broker.c` takes the broker's place; both are compiled with `cc`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.measure import MIB, BenchmarkError
from benchmarks.processes import tree_cpu_s
from benchmarks.request_frames import (
    API_VERSIONS_ANSWER,
    FIND_COORDINATOR_ANSWER,
    Admin,
    Answer,
    WrongAnswerError,
    api_versions_frame,
    batch_of,
    commit_answer,
    commit_frame,
    coordinator_port,
    fetch_answer,
    fetch_frame,
    find_coordinator_frame,
    produce_answer,
    produce_frame,
    records_in,
)

_HERE = Path(__file__).parent
_LEADER: Final = 1
_ALL: Final = -1
# A run ends after these, whichever comes first: a fast broker does not fill the memory that holds its log.
SECONDS = 3.0
_WRITTEN_BYTES_MOST = 768 * MIB
# What Fetch requests read, from one end to the other and again.
_READ_BYTES = 32 * MIB
_READ_BATCH_BYTES = 128 * 1024


@dataclass(frozen=True)
class Load:
    """Requests of one kind; `payload_bytes` are those of the request, its batch, or the fetched records."""

    name: str
    title: str
    kind: str
    payload_bytes: int
    connections: int
    in_flight: int
    cpu_ratio_aim: float | None = None
    bare_ratio_aim: float | None = None


LOADS = (
    Load("api-versions", "ApiVersions 100 B, 8 connections, 16 in flight", "api", 100, 8, 16),
    Load("produce-200-1x1", "Produce 200 B, 1 connection, 1 in flight", "produce", 200, 1, 1),
    Load("produce-200-8x1", "Produce 200 B, 8 connections, 1 in flight", "produce", 200, 8, 1, 0.5),
    Load("produce-200-8x5", "Produce 200 B, 8 connections, 5 in flight", "produce", 200, 8, 5, 0.5),
    Load("produce-16k-1x5", "Produce 16 KiB, 1 connection, 5 in flight", "produce", 16384, 1, 5, 0.5, 1.3),
    Load("produce-16k-8x5", "Produce 16 KiB, 8 connections, 5 in flight", "produce", 16384, 8, 5, 0.5, 1.3),
    Load("produce-1m-2x5", "Produce 1 MB, 2 connections, 5 in flight", "produce", 1_000_000, 2, 5),
    Load("fetch-1m-1", "Fetch 1 MiB, 1 connection", "fetch", MIB, 1, 1),
    Load("fetch-256k-8", "Fetch 256 KiB, 8 connections", "fetch", 256 * 1024, 8, 1),
    Load("commit-8x1", "OffsetCommit, 8 connections, 1 in flight", "commit", 100, 8, 1, 0.5),
    Load("commit-8x5", "OffsetCommit, 8 connections, 5 in flight", "commit", 100, 8, 5, 0.5),
)
# With three replicas, and acks=all where something is written.
REPLICATED_LOADS = tuple(replace(load, cpu_ratio_aim=0.5) for load in LOADS if load.kind != "api")
# Before the first load Java has compiled nothing yet, and it compiles what has run ten thousand times.
WARM_UP_LOADS = (
    LOADS[0],
    LOADS[3],
    Load("fetch-128k-8", "Fetch 128 KiB, 8 connections", "fetch", _READ_BATCH_BYTES, 8, 1),
)


@dataclass(frozen=True)
class Measured:
    """What one run took."""

    requests: int
    seconds: float
    cpu_s: float
    client_cpu_s: float

    @property
    def per_s(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.requests * 1e6


@dataclass(frozen=True)
class Prepared:
    """A file of ready requests, what their answers must be, how large one is, and the port of who answers."""

    frames: Path
    expected: Answer
    answer_bytes: int
    port: int


class Programs:
    """The two C programs, compiled into `scratch`. Raises BenchmarkError without a C compiler."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.client = _compiled(scratch, "ready_frames")
        self.no_broker = _compiled(scratch, "no_broker")

    def client_command(self, load: Load, ready: Prepared, *, seconds: float, requests_most: int) -> list[str]:
        """The client, to be started: it ends after so many seconds or requests."""
        expected = ready.expected
        sent = (load.connections, load.in_flight, seconds, requests_most)
        numbers = (ready.port, *sent, expected.least_bytes)
        errors_at = ",".join(map(str, expected.errors_at))
        checks = (str(int(expected.offsets_rise)), errors_at)
        return [str(self.client), *map(str, numbers), *checks, str(ready.frames)]

    def run_client(
        self, load: Load, ready: Prepared, *, seconds: float, cpu_s: Callable[[], float]
    ) -> Measured:
        """Puts one load on whatever listens at the port; `cpu_s` says how much CPU that has used so far."""
        most = _WRITTEN_BYTES_MOST // load.payload_bytes if load.kind == "produce" else 1 << 40
        command = self.client_command(load, ready, seconds=seconds, requests_most=most)
        before_s = cpu_s()
        found = self.run(command)
        used_s = cpu_s() - before_s
        return Measured(int(found["requests"]), found["seconds"], used_s, found["cpu_s"])

    def run(self, command: Sequence[str]) -> dict[str, float]:
        """What the client prints. Raises WrongAnswerError if it found a wrong answer."""
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode != 0:
            raise WrongAnswerError(done.stderr.decode().strip())
        figures: dict[str, float] = json.loads(done.stdout)
        return figures

    def run_bare(self, load: Load, ready: Prepared, *, seconds: float) -> Measured:
        """The same requests on a program that only receives, writes or sends the bytes."""
        mode = {"api": "answer", "produce": "append", "fetch": "send", "commit": "answer"}[load.kind]
        file = self.scratch / "no-broker"
        if mode == "send":
            file.write_bytes(bytes(_READ_BYTES))
        command = [str(self.no_broker), str(ready.answer_bytes), mode, str(file)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            bare = Prepared(ready.frames, Answer(ready.expected.errors_at), ready.answer_bytes, port)
            return self.run_client(load, bare, seconds=seconds, cpu_s=lambda: tree_cpu_s(process.pid))
        finally:
            process.kill()
            process.communicate()
            file.unlink(missing_ok=True)


@contextmanager
def prepared(
    port: int, load: Load, topic: str, scratch: Path, replicas: Sequence[int] = ()
) -> Iterator[Prepared]:
    """The topic and the requests of a load; the topic is deleted at the end, for its log is held in memory.

    One answer of each kind is read and checked here, whole. With `replicas` (its leader first) the topic has
    these, and Produce has acks=all.
    """
    admin = Admin(port)
    frames_file = scratch / f"{topic}.frames"
    try:
        if load.kind != "api":
            admin.create(topic, {}, replicas=replicas)
        made = _KINDS[load.kind](admin, load, topic, _ALL if replicas else _LEADER)
        frames_file.write_bytes(b"".join(made.frames))
        yield Prepared(frames_file, made.expected, len(made.answer) - 4, made.port or port)
    finally:
        frames_file.unlink(missing_ok=True)
        if load.kind != "api":
            admin.delete(topic)
        admin.close()


class _Made(NamedTuple):
    """The requests of a load, what their answers must be, one of these, and who else than asked answers."""

    frames: list[bytes]
    expected: Answer
    answer: bytes
    port: int = 0


def _api(admin: Admin, load: Load, topic: str, acks: int) -> _Made:  # noqa: ARG001
    frame = api_versions_frame(load.payload_bytes)
    return _Made([frame], API_VERSIONS_ANSWER, admin.send(frame, API_VERSIONS_ANSWER))


def _produce(admin: Admin, load: Load, topic: str, acks: int) -> _Made:
    frame = produce_frame(topic, batch_of(load.payload_bytes), acks)
    expected = produce_answer(topic)
    return _Made([frame], expected, admin.send(frame, expected))


def _fetch(admin: Admin, load: Load, topic: str, acks: int) -> _Made:
    """Fills the topic, then asks for pieces of it. The records of each answer are what was produced."""
    batch = batch_of(_READ_BATCH_BYTES)
    records = int.from_bytes(batch[57:61], "big")
    fill = produce_frame(topic, batch, acks)
    for _ in range(_READ_BYTES // len(batch)):
        admin.send(fill, produce_answer(topic))
    expected = fetch_answer(topic, load.payload_bytes)
    batches = load.payload_bytes // len(batch)
    frames = [
        fetch_frame(topic, first * records, load.payload_bytes)
        for first in range(0, _READ_BYTES // len(batch), batches)
    ]
    for frame in frames:
        answer = admin.send(frame, expected)
        found = records_in(topic, answer)
        # What a broker writes into a batch (base offset, leader epoch) stands before byte 16.
        pieces = [found[at + 16 : at + len(batch)] for at in range(0, len(found), len(batch))]
        if pieces != [batch[16:]] * batches:
            raise WrongAnswerError("Fetch is answered with other records than were produced")
    return _Made(frames, expected, answer)


def _commit(admin: Admin, load: Load, topic: str, acks: int) -> _Made:  # noqa: ARG001
    group = f"readers-of-{topic}"
    # The topic of the offsets is created when somebody asks for a coordinator.
    port = coordinator_port(admin.send(find_coordinator_frame(group), FIND_COORDINATOR_ANSWER))
    frame = commit_frame(group, topic)
    expected = commit_answer(topic)
    with closing(Admin(port)) as coordinator:
        return _Made([frame], expected, coordinator.send(frame, expected), port)


_KINDS = {"api": _api, "produce": _produce, "fetch": _fetch, "commit": _commit}


def _compiled(scratch: Path, name: str) -> Path:
    program = scratch / name
    try:
        done = subprocess.run(
            ["cc", "-O2", "-o", str(program), str(_HERE / f"{name}.c")],
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as missing:
        raise BenchmarkError("there is no C compiler (cc) to compile the client with") from missing
    if done.returncode != 0:
        raise BenchmarkError(f"cc {name}.c: {done.stderr.decode()[-1000:]}")
    return program
