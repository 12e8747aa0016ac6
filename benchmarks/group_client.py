"""Members of classic groups for the benchmarks, thousands in one process."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from benchmarks.measure import BenchmarkError

_OFFSET_FETCH, _JOIN, _HEARTBEAT, _SYNC = 9, 11, 12, 14
_SESSION_MS = 600_000
_REBALANCE_MS = 120_000
_REBALANCE_IN_PROGRESS = 27
_ILLEGAL_GENERATION = 22
# While the offsets topic is created and loaded: loading, not available, not the coordinator.
NOT_YET = (14, 15, 16)
_RETRY_S = 0.02
# A member finds out by its heartbeats that others have come.
_BUSY_HEARTBEAT_S = 0.05


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def frame(api: int, version: int, body: bytes) -> bytes:
    """A request whose header is not flexible."""
    return _sized(struct.pack(">hhih", api, version, 0, -1) + body)


def offset_fetch_frame(group: str, topic: str) -> bytes:
    """OffsetFetch version 5 of partition 0."""
    return frame(
        _OFFSET_FETCH, 5, _string(group) + struct.pack(">i", 1) + _string(topic) + struct.pack(">ii", 1, 0)
    )


class _Fields:
    """Reads the fields of an answer, one after the other."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return int(value)

    def text(self) -> str:
        size = self.number(">h")
        self.at += size
        return self.data[self.at - size : self.at].decode()


@dataclass
class Connection:
    """One connection of one member or of several that come one after the other."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, api: int, version: int, body: bytes) -> _Fields:
        """The answer, behind its correlation id."""
        self.writer.write(frame(api, version, body))
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return _Fields(await self.reader.readexactly(size), 4)


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    """A connection, closed at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()


@dataclass
class Group:
    """A group of `size` members; `stable` is set when all have their assignment in one generation."""

    name: str
    size: int
    heartbeat_s: float = 3.0
    generations: dict[int, int] = field(default_factory=dict)
    stable: asyncio.Event = field(default_factory=asyncio.Event)

    def synced(self, number: int, generation: int) -> None:
        """A member has its assignment."""
        self.generations[number] = generation
        if len(self.generations) == self.size and len(set(self.generations.values())) == 1:
            self.stable.set()


@dataclass(frozen=True)
class _Joined:
    generation: int
    member_id: str
    members: Sequence[str]


async def join(connection: Connection, group: str, member_id: str = "") -> _Joined:
    """JoinGroup version 2, until it succeeds."""
    subscription = struct.pack(">hi", 0, 1) + _string("bench") + struct.pack(">i", -1)
    body = (
        _string(group)
        + struct.pack(">ii", _SESSION_MS, _REBALANCE_MS)
        + _string(member_id)
        + _string("consumer")
        + struct.pack(">i", 1)
        + _string("range")
        + _sized(subscription)
    )
    while True:
        fields = await connection.ask(_JOIN, 2, body)
        fields.number(">i")  # throttle time
        error = fields.number(">h")
        if error in NOT_YET:
            await asyncio.sleep(_RETRY_S)
            continue
        if error:
            raise BenchmarkError(f"JoinGroup is answered with error code {error}")
        generation = fields.number(">i")
        fields.text()  # the protocol
        leader, own = fields.text(), fields.text()
        members = []
        for _ in range(fields.number(">i")):
            members.append(fields.text())
            metadata_bytes = fields.number(">i")
            fields.at += metadata_bytes
        return _Joined(generation, own, members if leader == own else ())


async def sync(connection: Connection, group: str, joined: _Joined) -> bool:
    """SyncGroup version 1; whether the generation has its assignments. Otherwise the member joins again."""
    body = _string(group) + struct.pack(">i", joined.generation) + _string(joined.member_id)
    body += struct.pack(">i", len(joined.members))
    body += b"".join(_string(member_id) + _sized(b"some partitions") for member_id in joined.members)
    fields = await connection.ask(_SYNC, 1, body)
    fields.number(">i")
    return _goes_on("SyncGroup", fields.number(">h"))


async def _beat(connection: Connection, group: str, joined: _Joined) -> bool:
    body = _string(group) + struct.pack(">i", joined.generation) + _string(joined.member_id)
    fields = await connection.ask(_HEARTBEAT, 1, body)
    fields.number(">i")
    return _goes_on("Heartbeat", fields.number(">h"))


def _goes_on(api: str, error: int) -> bool:
    if error and error not in (_REBALANCE_IN_PROGRESS, _ILLEGAL_GENERATION):
        raise BenchmarkError(f"{api} is answered with error code {error}")
    return not error


async def _live(port: int, group: Group, number: int) -> None:
    """A member: joins as often as it must, and shows that it is alive."""
    async with connected(port) as connection:
        member_id = ""
        while True:
            joined = await join(connection, group.name, member_id)
            member_id = joined.member_id
            if not await sync(connection, group.name, joined):
                continue
            group.synced(number, joined.generation)
            while True:
                # Members do not beat all at the same moment.
                share = (number + 1) / group.size
                wait_s = group.heartbeat_s * share if group.stable.is_set() else _BUSY_HEARTBEAT_S
                await asyncio.sleep(wait_s)
                if not await _beat(connection, group.name, joined):
                    break
                if group.stable.is_set():
                    await asyncio.sleep(group.heartbeat_s * (1 - share))


@contextlib.asynccontextmanager
async def running(port: int, group: Group) -> AsyncIterator[None]:
    """The members of a group, from the moment at which it is stable; gone at the end.

    Raises BenchmarkError if a member is refused.
    """
    members = [asyncio.create_task(_live(port, group, number)) for number in range(group.size)]
    stable = asyncio.create_task(group.stable.wait())
    try:
        done, _ = await asyncio.wait([stable, *members], return_when=asyncio.FIRST_COMPLETED)
        for each in done - {stable}:
            each.result()
        yield
    finally:
        for each in (stable, *members):
            each.cancel()
        await asyncio.gather(stable, *members, return_exceptions=True)


async def single_members(port: int, prefix: str, groups: int, connections: int) -> None:
    """Make so many groups of one member each, which stay until their sessions end."""

    async def some(first: int) -> None:
        async with connected(port) as connection:
            for number in range(first, groups, connections):
                name = f"{prefix}-{number}"
                if not await sync(connection, name, await join(connection, name)):
                    raise BenchmarkError(f"the only member of {name} is to join again")

    await asyncio.gather(*(some(first) for first in range(min(groups, connections))))
