"""TCP proxies on 127.0.0.1 between the processes of a test cluster, which cut and heal the network.

A cut is what a lost network is: nothing arrives, and no connection is closed. What was sent meanwhile arrives
after the cut has healed. Several brokers connect to one proxy, so each connection is assigned to the
process that owns its socket (`/proc`, so Linux only).
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar, cast

_HOST: Final = "127.0.0.1"
_READ_BYTES: Final = 256 * 1024
_TIMEOUT_S: Final = 30.0
_ENDED: Final = "0"
"""The inode of a connection that was closed, whose port another one may use meanwhile."""
_READINGS: Final = 5

_Result = TypeVar("_Result")

Node = int | str
"""A broker id, or `"zookeeper"`."""


class Proxies:
    """The proxies of a cluster, on a thread of their own. Safe for threads.

    `pids` gives the process ids of the nodes that run, which tell who connects.
    """

    def __init__(self, pids: Callable[[], Mapping[Node, int]]) -> None:
        self._pids = pids
        self._cuts: set[tuple[Node, Node]] = set()
        self._loop = asyncio.new_event_loop()
        self._held: set[Node] = set()
        self._healed = asyncio.Event()
        self._listeners: list[socket.socket] = []
        # With the nodes that each connection is between, once they are known.
        self._forwarding: dict[asyncio.Task[None], frozenset[Node | None]] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="klog-proxies", daemon=True)
        self._thread.start()

    def open(self, target: Node, port: int, source: Node | None = None) -> int:
        """Open a proxy to the port of a node for one source, or for any. Returns the proxy's port."""

        async def serve() -> int:
            listener = socket.create_server((_HOST, 0))
            listener.setblocking(False)
            self._listeners.append(listener)

            # An asyncio server leaks what it has accepted if it is closed in that moment (Python 3.11).
            def accept() -> None:
                with suppress(OSError):
                    connection, _ = listener.accept()
                    connection.setblocking(False)
                    task = self._loop.create_task(self._forward(connection, target, port, source))
                    self._forwarding[task] = frozenset()
                    task.add_done_callback(self._forwarding.pop)

            self._loop.add_reader(listener, accept)
            bound: int = listener.getsockname()[1]
            return bound

        return self._run(serve())

    def cut(self, source: Node, target: Node) -> None:
        """Let nothing that `source` sends arrive at `target`, in connections that either of them opened."""

        async def change() -> None:
            self._cuts.add((source, target))

        self._run(change())

    def heal(self, pairs: Iterable[tuple[Node, Node]] | None = None) -> None:
        """Undo the cuts between these senders and receivers, or all cuts."""

        async def change() -> None:
            self._cuts.difference_update(list(self._cuts) if pairs is None else pairs)
            self._look_again()

        self._run(change())

    def reset(self, one: Node, other: Node) -> None:
        """Close all connections between two nodes."""

        async def close() -> None:
            for task, nodes in self._forwarding.items():
                if nodes == {one, other}:
                    task.cancel()

        self._run(close())

    def hold(self, target: Node, *, is_held: bool) -> None:
        """Let new connections to a node wait, or go on. A node that starts may neglect early ones."""

        async def change() -> None:
            if is_held:
                self._held.add(target)
            else:
                self._held.discard(target)
            self._look_again()

        self._run(change())

    def _look_again(self) -> None:
        self._healed.set()
        self._healed = asyncio.Event()

    def close(self) -> None:
        """Close all connections and end the thread."""
        if self._loop.is_closed():
            return

        async def end() -> None:
            for listener in self._listeners:
                self._loop.remove_reader(listener)
                listener.close()
            # A task that is cancelled before it begins would not close its connection.
            await asyncio.sleep(0)
            forwarding = list(self._forwarding)
            for task in forwarding:
                task.cancel()
            await asyncio.gather(*forwarding, return_exceptions=True)
            # A transport closes in the next turn of the loop.
            await asyncio.sleep(0)

        self._run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT_S)

    async def _forward(self, connection: socket.socket, target: Node, port: int, source: Node | None) -> None:
        reader, writer = await asyncio.open_connection(sock=connection, limit=_READ_BYTES)
        try:
            first = b""
            if source is None:
                source, first = await self._who_connects(reader, writer)
            task = cast("asyncio.Task[None]", asyncio.current_task())
            self._forwarding[task] = frozenset((source, target))
            # A lost network would not connect them either.
            await self._until_whole(source, target)
            while target in self._held:
                await self._healed.wait()
            await self._pump_both(first, reader, writer, source, (target, port))
        except OSError:
            pass  # the node does not run: the connection is closed, as a refused one would be
        finally:
            writer.close()

    async def _pump_both(
        self,
        first: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        source: Node | None,
        far: tuple[Node, int],
    ) -> None:
        target, port = far
        far_reader, far_writer = await asyncio.open_connection(_HOST, port, limit=_READ_BYTES)
        far_writer.write(first)
        pumps = [
            asyncio.ensure_future(self._pump(reader, far_writer, source, target)),
            asyncio.ensure_future(self._pump(far_reader, writer, target, source)),
        ]
        try:
            # An end is seen like data: only when the network is whole.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            far_writer.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sender: Node | None, to: Node | None
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(_READ_BYTES):
                await self._until_whole(sender, to)
                writer.write(data)
                await writer.drain()
        await self._until_whole(sender, to)

    async def _until_whole(self, sender: Node | None, to: Node | None) -> None:
        while (sender, to) in self._cuts:
            await self._healed.wait()

    async def _who_connects(
        self,
        reader: asyncio.StreamReader,  # noqa: ARG002 (others tell by what is sent)
        writer: asyncio.StreamWriter,
    ) -> tuple[Node | None, bytes]:
        """The node that connects, and what was read of the connection to know it."""
        ports = (writer.get_extra_info(name)[1] for name in ("peername", "sockname"))
        return self._owner(*ports), b""

    def _owner(self, port: int, proxy_port: int) -> Node | None:
        # The table is read in parts while it changes, so a socket may be missing in one reading.
        inodes = (_socket_inode(port, proxy_port) for _ in range(_READINGS))
        inode = next((each for each in inodes if each is not None), None)
        for node, pid in self._pids().items():
            if inode is not None and f"socket:[{inode}]" in _descriptors(pid):
                return node
        return None


def _socket_inode(port: int, proxy_port: int) -> str | None:
    """The inode of the socket of 127.0.0.1 that is bound to a port and connected to the proxy's."""
    ends = (f"0100007F:{port:04X}", f"0100007F:{proxy_port:04X}")
    for table in ("tcp", "tcp6"):  # a JVM uses the second, too
        with suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text("ascii").splitlines()[1:]:
                fields = line.split()
                if fields[9] != _ENDED and all(map(str.endswith, fields[1:3], ends)):
                    return fields[9]
    return None


def _descriptors(pid: int) -> set[str]:
    directory = f"/proc/{pid}/fd"
    found = set()
    with suppress(OSError):
        for name in os.listdir(directory):
            with suppress(OSError):
                found.add(os.readlink(f"{directory}/{name}"))
    return found
