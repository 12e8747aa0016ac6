"""Builds the requests that `ready_frames.c` sends, by hand, and creates and deletes their topics.

Rules: Kafka's message schemas. Produce version 9 and Fetch version 12 are the last that name topics.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.measure import BenchmarkError

_TIMEOUT_S = 60
_CREATE_TOPICS, _DELETE_TOPICS, _API_VERSIONS, _PRODUCE, _FETCH = 19, 20, 18, 0, 1
_OFFSET_COMMIT, _FIND_COORDINATOR = 8, 10
# Unknown topic or partition, no leader, not leader, replica not available; coordinator loads, is not there.
_NOT_YET = (3, 5, 6, 9, 14, 15, 16)
_TOPIC_EXISTS = 36
_BATCH_HEADER_BYTES = 61


@dataclass(frozen=True)
class Answer:
    """What an answer must be: the positions of its error codes, size included, and its least size."""

    errors_at: tuple[int, ...]
    least_bytes: int = 0
    offsets_rise: bool = False


class WrongAnswerError(BenchmarkError):
    """The broker did not do what the request asks for."""


def api_versions_frame(total_bytes: int) -> bytes:
    """ApiVersions version 0; the client id is as long as it takes."""
    client_id = b"c" * (total_bytes - 14)
    body = struct.pack(">hhih", _API_VERSIONS, 0, 0, len(client_id)) + client_id
    return _framed(body)


API_VERSIONS_ANSWER = Answer(errors_at=(8,))


def produce_frame(topic: str, batch: bytes, acks: int = 1) -> bytes:
    """Produce version 9 of one batch to partition 0."""
    name = topic.encode()
    body = b"".join(
        (
            _flexible_header(_PRODUCE, 9),
            struct.pack(">Bhi", 0, acks, 30_000),  # no transactional id
            bytes((2, len(name) + 1)),
            name,
            struct.pack(">Bi", 2, 0),
            _varint(len(batch) + 1),
            batch,
            bytes(3),  # no tagged fields: of the partition, of the topic, of the request
        )
    )
    return _framed(body)


def produce_answer(topic: str) -> Answer:
    # Size, correlation id, tags, topics, name with its size, partitions, partition; then the error code.
    return Answer(errors_at=(4 + 4 + 1 + 1 + 1 + len(topic) + 1 + 4,), offsets_rise=True)


def fetch_frame(topic: str, offset: int, most_bytes: int) -> bytes:
    """Fetch version 12 of partition 0 without a session."""
    name = topic.encode()
    body = b"".join(
        (
            _flexible_header(_FETCH, 12),
            struct.pack(">iiiibii", -1, 500, 1, most_bytes, 0, 0, -1),
            bytes((2, len(name) + 1)),
            name,
            struct.pack(">B", 2),
            struct.pack(">iiqiqi", 0, -1, offset, -1, -1, most_bytes),
            bytes(2),  # no tagged fields: of the partition, of the topic
            bytes((1, 1, 0)),  # nothing forgotten, no rack, no tagged fields
        )
    )
    return _framed(body)


def fetch_answer(topic: str, most_bytes: int) -> Answer:
    # Size, correlation id, tags, throttle time, error code, session, topics, name, partitions, partition.
    top = 4 + 4 + 1 + 4
    return Answer(errors_at=(top, top + 2 + 4 + 1 + 1 + len(topic) + 1 + 4), least_bytes=most_bytes)


def find_coordinator_frame(group: str) -> bytes:
    """FindCoordinator version 2 of a group."""
    return _framed(struct.pack(">hhih", _FIND_COORDINATOR, 2, 0, -1) + _string(group) + b"\0")


# Size, correlation id, throttle time; then the error code.
FIND_COORDINATOR_ANSWER = Answer(errors_at=(12,))


def coordinator_port(answer: bytes) -> int:
    """Where the coordinator of a FindCoordinator answer (version 2) listens."""
    return int(struct.unpack(">i", answer[-4:])[0])


def commit_frame(group: str, topic: str, partitions: Sequence[int] = (0,)) -> bytes:
    """OffsetCommit version 7 of these partitions, by a client that is no member."""
    head = struct.pack(">hhih", _OFFSET_COMMIT, 7, 0, -1) + _string(group)
    member = struct.pack(">ihh", -1, 0, -1)  # no generation, no member id, no instance id
    topics = struct.pack(">i", 1) + _string(topic)
    commits = (struct.pack(">iqih", partition, 123_456, 0, 0) for partition in partitions)
    return _framed(head + member + topics + struct.pack(">i", len(partitions)) + b"".join(commits))


def commit_answer(topic: str) -> Answer:
    # Size, correlation id, throttle time, topics, name, partitions, partition; then the error code.
    return Answer(errors_at=(4 + 4 + 4 + 4 + 2 + len(topic) + 4 + 4,))


def batch_of(total_bytes: int) -> bytes:
    """A magic 2 batch of exactly so many bytes: records with values of 1000 bytes, the last one shorter."""
    # Only here: who measures stays small until it has to build a batch.
    from klog.kernel.batch_builder import RecordData, build_batch  # noqa: PLC0415

    now_ms = time.time_ns() // 1_000_000

    def build(sizes: list[int]) -> bytes:
        return bytes(build_batch([RecordData(n, now_ms, None, bytes(size)) for n, size in enumerate(sizes)]))

    for records in range((total_bytes - _BATCH_HEADER_BYTES) // 1010, -1, -1):
        sizes = [1000] * records
        # The lengths before a value are varints: a value that is larger may make them larger too.
        missing = total_bytes - len(build([*sizes, 0]))
        for last in range(max(0, missing - 4), missing + 1):
            if len(batch := build([*sizes, last])) == total_bytes:
                return batch
    raise ValueError(f"no batch has {total_bytes} bytes")


class Admin:
    """Creates, fills and deletes topics of a broker over one connection."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._sock = tls.wrap_socket(self._sock, server_hostname="localhost")

    def create(
        self, topic: str, config: dict[str, str], partitions: int = 1, replicas: Sequence[int] = ()
    ) -> None:
        """A topic (CreateTopics version 2). `replicas` are the brokers of each partition, its leader first.

        Without them, each partition has one replica somewhere.
        """
        configs = b"".join(_string(key) + _string(value) for key, value in config.items())
        counts = (-1, -1, partitions) if replicas else (partitions, 1, 0)
        assigned = struct.pack(f">i{len(replicas)}i", len(replicas), *replicas) if replicas else b""
        head = struct.pack(">i", 1) + _string(topic) + struct.pack(">ihi", *counts)
        head += b"".join(struct.pack(">i", number) + assigned for number in range(counts[2]))
        tail = struct.pack(">i", len(config)) + configs + struct.pack(">ib", 30_000, 0)
        answer = self.ask(_CREATE_TOPICS, 2, head + tail)
        # Size, correlation id, throttle time, topics, name; then the error code.
        error = struct.unpack_from(">h", answer, 4 + 4 + 4 + 4 + 2 + len(topic))[0]
        if error not in (0, _TOPIC_EXISTS):
            raise WrongAnswerError(f"CreateTopics is answered with error code {error}")

    def delete(self, topic: str) -> None:
        """DeleteTopics version 1."""
        answer = self.ask(
            _DELETE_TOPICS, 1, struct.pack(">i", 1) + _string(topic) + struct.pack(">i", 30_000)
        )
        if error := struct.unpack_from(">h", answer, 4 + 4 + 4 + 4 + 2 + len(topic))[0]:
            raise WrongAnswerError(f"DeleteTopics is answered with error code {error}")

    def send(self, frame: bytes, expected: Answer) -> bytes:
        """The answer to a ready frame, checked. Asks again while the new topic has no leader yet."""
        until_s = time.monotonic() + _TIMEOUT_S
        while True:
            self.post(frame)
            answer, errors = self.receive(expected)
            if any(error not in (0, *_NOT_YET) for error in errors) or time.monotonic() > until_s:
                raise WrongAnswerError(f"API {frame[5]} is answered with error code {errors}")
            if not any(errors):
                return answer
            time.sleep(0.02)

    def post(self, frame: bytes) -> None:
        """Send a ready frame, whose answer is to be received."""
        self._sock.sendall(frame)

    def receive(self, expected: Answer) -> tuple[bytes, list[int]]:
        """The next answer and its error codes. Raises WrongAnswerError if it is too short without one."""
        head = self._receive(4)
        answer = head + self._receive(int.from_bytes(head, "big"))
        errors = [struct.unpack_from(">h", answer, at)[0] for at in expected.errors_at]
        if not any(errors) and len(answer) - 4 < expected.least_bytes:
            raise WrongAnswerError(
                f"an answer of {len(answer) - 4} bytes, not {expected.least_bytes} or more"
            )
        return answer, errors

    def ask(self, api: int, version: int, body: bytes) -> bytes:
        self.post(_framed(struct.pack(">hhih", api, version, 0, -1) + body))
        return self.receive(Answer(()))[0]

    def close(self) -> None:
        self._sock.close()

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self._sock.recv(size - len(data))
            if not more:
                raise WrongAnswerError("the broker closed the connection")
            data += more
        return bytes(data)


def records_in(topic: str, answer: bytes) -> bytes:
    """The records of a Fetch answer (version 12) for one partition."""
    # After the error code: high watermark, last stable offset, log start offset, aborted, replica.
    position = fetch_answer(topic, 0).errors_at[1] + 2 + 8 + 8 + 8 + 1 + 4
    size, shift = 0, 0
    while True:
        byte = answer[position]
        position += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return answer[position : position + size - 1]


def joined(frames: Sequence[bytes]) -> bytes:
    """What `ready_frames` reads from its file."""
    return b"".join(frames)


def _flexible_header(api: int, version: int) -> bytes:
    return struct.pack(">hhih", api, version, 0, 5) + b"bench\0"


def _framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)
