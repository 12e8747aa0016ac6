"""TCP proxies on 127.0.0.1 between the processes of a test cluster, which cut and heal the network.

A cut is what a lost network is: nothing arrives, and no connection is closed. What was sent meanwhile arrives
after the cut has healed. Several brokers connect to one proxy, so each connection is assigned to the
process that owns its socket (`/proc`, so Linux only).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

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
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="klog-proxies", daemon=True)
        self._thread.start()

    def open(self, target: Node, port: int, source: Node | None = None) -> int:
        """Open a proxy to the port of a node for one source, or for any. Returns the proxy's port."""

        async def serve() -> int:
            async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await self._forward(reader, writer, target, port, source)

            server = await asyncio.start_server(connected, _HOST, 0, limit=_READ_BYTES)
            self._servers.append(server)
            bound: int = server.sockets[0].getsockname()[1]
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
            for server in self._servers:
                server.close()
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self._run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT_S)

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        target: Node,
        port: int,
        source: Node | None,
    ) -> None:
        if source is None:
            source = self._owner(writer.get_extra_info("peername")[1], writer.get_extra_info("sockname")[1])
        far_writer: asyncio.StreamWriter | None = None
        # A lost network would not connect them either.
        await self._until_whole(source, target)
        while target in self._held:
            await self._healed.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection(_HOST, port, limit=_READ_BYTES)
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
        except OSError:
            pass  # the node does not run: the connection is closed, as a refused one would be
        finally:
            for each in (writer, far_writer):
                if each is not None:
                    each.close()

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
