"""TCP proxies on 127.0.0.1 between brokers, and between brokers and ZooKeeper.

Each broker advertises the address of a proxy to the other brokers. The proxy learns from the client id of
the first request which broker connects: Kafka and klog put the broker's id there.

A cut link transports nothing and closes nothing, as a network that drops packets. What waits arrives once the
link is restored.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from tests.threads import join, started

ZOOKEEPER: Final = -1
_CHUNK_BYTES: Final = 1 << 16
# Size, API key, version and correlation id of a request; then the client id with its size.
_HEADER: Final = struct.Struct(">ihhih")


class Links:
    """All proxies of a cluster. A link is a pair: who connects, and to whom. `ZOOKEEPER` is such a peer."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._cut: set[tuple[int, int]] = set()
        self._restored = asyncio.Event()
        self._connections: dict[tuple[int, int], set[asyncio.Task[None]]] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._listeners: list[socket.socket] = []
        self._thread = started(self._loop.run_forever)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        join([self._thread])
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _close(self) -> None:
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        # A task that is cancelled before it begins would not close its connection.
        await asyncio.sleep(0)
        serving = set(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        # A transport closes in the next turn of the loop.
        await asyncio.sleep(0)

    # -- cutting ---------------------------------------------------------------------------------------------

    def cut(self, one: int, other: int) -> None:
        """Nothing passes between the two any more, in either direction."""
        self._call(self._change(lambda: self._cut.update({(one, other), (other, one)})))

    def isolate(self, one: int, others: list[int]) -> None:
        for other in others:
            self.cut(one, other)

    def restore(self) -> None:
        """All links transport again."""
        self._call(self._change(self._cut.clear))

    def reset(self, one: int, other: int) -> None:
        """Closes all connections between the two."""
        self._call(self._reset({(one, other), (other, one)}))

    async def _change(self, change: Callable[[], None]) -> None:
        change()
        before, self._restored = self._restored, asyncio.Event()
        before.set()

    async def _reset(self, pairs: set[tuple[int, int]]) -> None:
        for pair in pairs:
            for task in list(self._connections.get(pair, ())):
                task.cancel()

    # -- proxies ---------------------------------------------------------------------------------------------

    def to_broker(self, broker_id: int, port: int) -> int:
        """The port of a new proxy in front of a broker."""
        return int(self._call(self._listen(None, broker_id, port)))

    def to_zookeeper(self, broker_id: int, port: int) -> int:
        """The port of a new proxy between a broker and ZooKeeper."""
        return int(self._call(self._listen(broker_id, ZOOKEEPER, port)))

    async def _listen(self, source: int | None, target: int, port: int) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self._listeners.append(listener)

        # An asyncio server leaks what it has accepted if it is closed in that moment (Python 3.11).
        def accept() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                connection.setblocking(False)
                task = self._loop.create_task(self._serve(source, target, port, connection))
                self._serving.add(task)
                task.add_done_callback(self._serving.discard)

        self._loop.add_reader(listener, accept)
        return int(listener.getsockname()[1])

    async def _serve(self, source: int | None, target: int, port: int, connection: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None
        reader, writer = await asyncio.open_connection(sock=connection, limit=_CHUNK_BYTES)
        try:
            first = b""
            who = source
            if who is None:
                first, who = await _first_request(reader)
            pair = who, target
            self._connections.setdefault(pair, set()).add(task)
            try:
                await self._transport(pair, port, first, reader, writer)
            finally:
                self._connections[pair].discard(task)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _open(self, pair: tuple[int, int]) -> None:
        while pair in self._cut:
            await self._restored.wait()

    async def _transport(
        self,
        pair: tuple[int, int],
        port: int,
        first: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        await self._open(pair)
        from_target, to_target = await asyncio.open_connection("127.0.0.1", port, limit=_CHUNK_BYTES)
        try:
            to_target.write(first)
            there = asyncio.ensure_future(self._pump(pair, reader, to_target))
            back = asyncio.ensure_future(self._pump((pair[1], pair[0]), from_target, writer))
            try:
                await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in (there, back):
                    each.cancel()
                await asyncio.gather(there, back, return_exceptions=True)
        finally:
            to_target.close()

    async def _pump(
        self, direction: tuple[int, int], source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        while True:
            data = await source.read(_CHUNK_BYTES)
            # An end of the connection does not pass a cut link either.
            await self._open(direction)
            if not data:
                return
            sink.write(data)
            await sink.drain()


async def _first_request(reader: asyncio.StreamReader) -> tuple[bytes, int]:
    """The beginning of the first request, and the id of the broker that sent it."""
    header = await reader.readexactly(_HEADER.size)
    client_id = await reader.readexactly(max(_HEADER.unpack(header)[4], 0))
    number = re.search(rb"\d+", client_id)
    assert number is not None, f"no broker id in the client id {client_id!r}"
    return header + client_id, int(number[0])
