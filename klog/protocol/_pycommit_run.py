"""Consecutive OffsetCommit frames of the usual kind from one member: read, written and answered together.

A usual frame is an OffsetCommit request of version 2 to 9 with some topics and partitions, each named once:
all its text is ASCII, there are no tagged fields and no retention time. Such a request becomes one batch of
`__consumer_offsets`, as in Kafka: with base sequence 0, and one record for each offset. Every other frame
ends the run and is left to the general reader, which also finds the error to answer.

This is the plain form of `_commit_run.pyx`; tests hold the two equal.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from klog.formats.batch_builder import BatchFields, RecordData, build_batch
from klog.formats.packed import INT16, INT32, INT64
from klog.protocol.apis import ApiKey
from klog.protocol.errors import MalformedMessageError
from klog.protocol.primitives import read_uvarint

IMPLEMENTATION: Final = "python"

MOST_FRAMES: Final = 64
MOST_COMMITS: Final = 1024
MOST_IN_ONE: Final = 64  # topics of a frame, and partitions of a topic
_VERSIONS: Final = range(2, 10)
_THROTTLE_FROM: Final = 3
_RETENTION_TO: Final = 4
_EPOCH_FROM: Final = 6
_INSTANCE_FROM: Final = 7
_FLEXIBLE_FROM: Final = 8
_HEADER: Final = struct.Struct(">ihhih")  # size, key, version, correlation id, size of the client id
_NO_RETENTION: Final = -1
_LONGEST_NAME_BYTES: Final = 0x7E
_LONGEST_STRING_BYTES: Final = 0x7FFF
_PLACE: Final = struct.Struct(">qii")  # base offset, size of what follows, leader epoch
_KEY_VERSION: Final = INT16.pack(1)
_VALUE: Final = struct.Struct(">hqi")  # version, offset, leader epoch
_VALUE_VERSION: Final = 3
_COMMITS_SEQUENCE: Final = BatchFields(base_sequence=0)


class _Commit(NamedTuple):
    """One offset."""

    topic: bytes
    partition: int
    offset: int
    leader_epoch: int
    metadata: bytes


class _Sender(NamedTuple):
    """What all frames of a run have in common."""

    version: int
    group: bytes
    generation: int
    member: bytes
    instance: bytes | None


@dataclass(frozen=True, slots=True)
class _Frame:
    correlation_id: int
    end: int
    commits: tuple[_Commit, ...]


class CommitRun:
    """A run of frames. `read` fills it, and what was read before is forgotten.

    Attributes: `frames` is how many there are, `records` how many offsets are in them, `end` the position
    after the last one; `version`, `group`, `generation`, `member` and `instance` (None: not static) are what
    they have in common. `largest_metadata_bytes` is that of an offset.

    After `stamp` it also has what `PartitionLog.append_run` asks of a run of batches: see `ProduceRun`.
    """

    keyless: Final = False
    has_producer_ids: Final = False

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._frames: list[_Frame] = []
        self._batches: list[bytearray] = []
        self.frames = self.records = self.end = self.version = self.generation = 0
        self.acks = self.largest_metadata_bytes = 0
        self.group = self.member = ""
        self.instance: str | None = None
        self.size_bytes = self.last_size_bytes = self.largest_size_bytes = 0
        self.smallest_timestamp = self.max_timestamp = self.max_timestamp_records = 0

    def read(self, buffer: bytearray, start: int, end: int) -> int:
        """Read as many whole frames as there are from `start` on, before `end`; returns how many.

        The buffer is remembered: the other methods must be called before it changes.
        """
        self._buffer, self._frames, self._batches = buffer, [], []
        self.group, self.member, self.instance = "", "", None
        self.end = start
        self.records = self.largest_metadata_bytes = 0
        sender = None
        with memoryview(buffer) as view:
            end = min(end, len(view))
            while len(self._frames) < MOST_FRAMES and 0 <= self.end < end:
                found = _frame(view, self.end, end)
                if found is None or (sender is not None and found[0] != sender):
                    break
                sender, frame = found
                if self.records + len(frame.commits) > MOST_COMMITS:
                    break
                self._add(frame)
        if sender is not None and self._frames:
            self.version, group, self.generation, member, instance = sender
            self.group, self.member = group.decode(), member.decode()
            self.instance = None if instance is None else instance.decode()
        self.frames = len(self._frames)
        return self.frames

    def _add(self, frame: _Frame) -> None:
        self._frames.append(frame)
        self.end = frame.end
        self.records += len(frame.commits)
        largest = max(len(commit.metadata) for commit in frame.commits)
        self.largest_metadata_bytes = max(self.largest_metadata_bytes, largest)

    def _commits(self) -> list[_Commit]:
        if self.frames and len(self._buffer) < self.end:
            raise IndexError("the buffer has become smaller than what was read of it")
        return [commit for frame in self._frames for commit in frame.commits]

    def partitions(self) -> list[tuple[bytes, int]]:
        """Topic and partition of each offset. Raises IndexError if the buffer has become smaller."""
        return [(commit.topic, commit.partition) for commit in self._commits()]

    def offsets(self) -> list[tuple[int, int, str]]:
        """Each offset with its leader epoch and metadata.

        Raises IndexError if the buffer has become smaller.
        """
        return [(each.offset, each.leader_epoch, each.metadata.decode()) for each in self._commits()]

    def stamp(self, acks: int, now_ms: int) -> None:
        """Make the batches, with this time. Raises IndexError if the buffer has become smaller."""
        self._commits()
        self.acks = acks
        self.smallest_timestamp = self.max_timestamp = now_ms
        group = self.group.encode()
        self._batches = [_batch(group, frame.commits, now_ms) for frame in self._frames]
        sizes = [len(batch) for batch in self._batches]
        self.size_bytes, self.largest_size_bytes = sum(sizes), max(sizes, default=0)
        self.last_size_bytes = sizes[-1] if sizes else 0
        self.max_timestamp_records = len(self._frames[0].commits) if self._frames else 0

    def batch(self, number: int) -> tuple[int, int, int, int, int, int]:
        """Records, maximum timestamp, producer id and epoch, base sequence and size of one batch.

        Raises IndexError.
        """
        if not 0 <= number < self.frames:
            raise IndexError(f"batch {number} of {self.frames}")
        commits = self._frames[number].commits
        return len(commits), self.max_timestamp, -1, -1, 0, _batch_bytes(self.group.encode(), commits)

    def data(self, first_offset: int, leader_epoch: int) -> bytes:
        """The batches, with their offsets and the leader epoch. They are given away: once only."""
        for batch, frame in zip(self._batches, self._frames, strict=False):
            _PLACE.pack_into(batch, 0, first_offset, len(batch) - 12, leader_epoch)
            first_offset += len(frame.commits)
        taken, self._batches = self._batches, []
        return b"".join(taken)

    def answers(self) -> bytes:
        """The answers to all frames, without errors. Raises IndexError if the buffer has become smaller."""
        self._commits()
        return b"".join(_answer(frame, self.version) for frame in self._frames)


class _UnusualError(Exception):
    """The frame is not a usual one."""


class _Fields:
    """Reads the fields of a frame. Raises `_UnusualError` where it is not a usual one."""

    def __init__(self, frame: memoryview, at: int, *, flexible: bool) -> None:
        self.frame = frame
        self.at = at
        self.flexible = flexible

    def number(self, layout: struct.Struct) -> int:
        try:
            (value,) = layout.unpack_from(self.frame, self.at)
        except struct.error:
            raise _UnusualError from None
        self.at += layout.size
        return int(value)

    def nullable(self) -> bytes | None:
        if self.flexible:
            try:
                size, self.at = read_uvarint(self.frame, self.at)
            except MalformedMessageError:
                raise _UnusualError from None
            size -= 1
        else:
            size = self.number(INT16)
        if not -1 <= size <= _LONGEST_STRING_BYTES or size > len(self.frame) - self.at:
            raise _UnusualError
        if size < 0:
            return None
        text = bytes(self.frame[self.at : self.at + size])
        self.at += size
        if not text.isascii():
            raise _UnusualError
        return text

    def string(self) -> bytes:
        text = self.nullable()
        if text is None:
            raise _UnusualError
        return text

    def count(self) -> int:
        count = self.number(_UINT8) - 1 if self.flexible else self.number(INT32)
        if not 1 <= count <= MOST_IN_ONE:
            raise _UnusualError
        return count

    def no_tags(self) -> None:
        if self.flexible and self.number(_UINT8):
            raise _UnusualError


_UINT8: Final = struct.Struct(">B")


def _frame(view: memoryview, start: int, end: int) -> tuple[_Sender, _Frame] | None:
    """The frame at `start`; None if it is not a usual one, or not whole."""
    if end - start < _HEADER.size:
        return None
    size, key, version, correlation_id, client_size = _HEADER.unpack_from(view, start)
    stop = start + 4 + size
    at = start + _HEADER.size + max(client_size, 0)
    if stop > end or at > stop or key != ApiKey.OFFSET_COMMIT or version not in _VERSIONS:
        return None
    fields = _Fields(view[:stop], at, flexible=version >= _FLEXIBLE_FROM)
    try:
        fields.no_tags()
        sender = _sender(fields, version)
        commits = _topics(fields, version)
    except _UnusualError:
        return None
    return (sender, _Frame(correlation_id, stop, commits)) if fields.at == stop else None


def _sender(fields: _Fields, version: int) -> _Sender:
    group, generation, member = fields.string(), fields.number(INT32), fields.string()
    instance = fields.nullable() if version >= _INSTANCE_FROM else None
    if not group or (version <= _RETENTION_TO and fields.number(INT64) != _NO_RETENTION):
        raise _UnusualError
    return _Sender(version, group, generation, member, instance)


def _topics(fields: _Fields, version: int) -> tuple[_Commit, ...]:
    """The offsets of a frame, which end it."""
    commits: dict[tuple[bytes, int], _Commit] = {}
    names = set()
    for _ in range(fields.count()):
        name = fields.string()
        if not 1 <= len(name) <= _LONGEST_NAME_BYTES or name in names:
            raise _UnusualError
        names.add(name)
        for _ in range(fields.count()):
            commit = _commit(fields, version, name)
            if (name, commit.partition) in commits or len(commits) == MOST_COMMITS:
                raise _UnusualError
            commits[name, commit.partition] = commit
        fields.no_tags()
    fields.no_tags()
    return tuple(commits.values())


def _commit(fields: _Fields, version: int, topic: bytes) -> _Commit:
    partition, offset = fields.number(INT32), fields.number(INT64)
    leader_epoch = fields.number(INT32) if version >= _EPOCH_FROM else -1
    commit = _Commit(topic, partition, offset, leader_epoch, fields.nullable() or b"")
    fields.no_tags()
    return commit


def _sized(data: bytes) -> bytes:
    return INT16.pack(len(data)) + data


def _batch(group: bytes, commits: tuple[_Commit, ...], now_ms: int) -> bytearray:
    records = [
        RecordData(
            number,
            now_ms,
            _KEY_VERSION + _sized(group) + _sized(commit.topic) + INT32.pack(commit.partition),
            _VALUE.pack(_VALUE_VERSION, commit.offset, commit.leader_epoch)
            + _sized(commit.metadata)
            + INT64.pack(now_ms),
        )
        for number, commit in enumerate(commits)
    ]
    return build_batch(records, _COMMITS_SEQUENCE)


def _batch_bytes(group: bytes, commits: tuple[_Commit, ...]) -> int:
    return len(_batch(group, commits, 0))


def _count(count: int, *, flexible: bool) -> bytes:
    return bytes((count + 1,)) if flexible else INT32.pack(count)


def _answer(frame: _Frame, version: int) -> bytes:
    flexible = version >= _FLEXIBLE_FROM
    tags = b"\0" if flexible else b""
    by_topic: dict[bytes, list[int]] = {}
    for commit in frame.commits:
        by_topic.setdefault(commit.topic, []).append(commit.partition)
    parts = [INT32.pack(frame.correlation_id), tags]
    if version >= _THROTTLE_FROM:
        parts.append(INT32.pack(0))
    parts.append(_count(len(by_topic), flexible=flexible))
    for topic, partitions in by_topic.items():
        parts.append(bytes((len(topic) + 1,)) + topic if flexible else _sized(topic))
        parts.append(_count(len(partitions), flexible=flexible))
        parts += (INT32.pack(partition) + b"\0\0" + tags for partition in partitions)
        parts.append(tags)
    body = b"".join([*parts, tags])
    return INT32.pack(len(body)) + body
