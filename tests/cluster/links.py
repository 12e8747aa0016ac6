"""TCP proxies on 127.0.0.1 between brokers, and between brokers and ZooKeeper.

Each broker advertises the address of a proxy to the other brokers. The proxy learns from the client id of
the first request which broker connects: Kafka and klog put the broker's id there.
"""

from __future__ import annotations

import asyncio
import re
import struct
from typing import Final

from klog.testing.proxies import Node, Proxies

ZOOKEEPER: Final = -1
# Size, API key, version and correlation id of a request; then the client id with its size.
_HEADER: Final = struct.Struct(">ihhih")


class Links(Proxies):
    """All proxies of a cluster. A link is between two brokers, or between a broker and `ZOOKEEPER`."""

    def __init__(self) -> None:
        super().__init__(dict)

    def cut(self, one: Node, other: Node) -> None:
        """Nothing passes between the two any more, in either direction."""
        super().cut(one, other)
        super().cut(other, one)

    def isolate(self, one: int, others: list[int]) -> None:
        for other in others:
            self.cut(one, other)

    def restore(self) -> None:
        """All links transport again."""
        self.heal()

    def to_broker(self, broker_id: int, port: int) -> int:
        """The port of a new proxy in front of a broker."""
        return self.open(broker_id, port)

    def to_zookeeper(self, broker_id: int, port: int) -> int:
        """The port of a new proxy between a broker and ZooKeeper."""
        return self.open(ZOOKEEPER, port, broker_id)

    async def _who_connects(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[Node | None, bytes]:
        """The broker that sends the first request, and the beginning of the request."""
        try:
            header = await reader.readexactly(_HEADER.size)
            client_id = await reader.readexactly(max(_HEADER.unpack(header)[4], 0))
        except asyncio.IncompleteReadError as error:
            raise ConnectionError("the connection ends before its first request") from error
        number = re.search(rb"\d+", client_id)
        assert number is not None, f"no broker id in the client id {client_id!r}"
        return int(number[0]), header + client_id
