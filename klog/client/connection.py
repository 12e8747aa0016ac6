"""What a client needs of a connection to a broker, and one that reconnects by itself.

`klog.protocol.channel.Channel` is the connection over a socket; tests and simulations have their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from klog.protocol.entity_fields import Entity
from klog.protocol.errors import ConnectionLostError
from klog.protocol.primitives import Buffer

_Answer = TypeVar("_Answer")


class HostPort(NamedTuple):
    """An address to connect to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Connection(Protocol):
    """A blocking connection to one broker; see `Channel` for what each method does and raises."""

    @property
    def connected(self) -> bool: ...

    def connect(self) -> None: ...

    def close(self) -> None: ...

    def version_of(self, api_key: int, at_most: int | None = None) -> int: ...

    def send(self, request: Entity, timeout_ms: int | None = None) -> Entity: ...

    def request(
        self,
        api_key: int,
        version: int,
        body: Sequence[Buffer],
        decode: Callable[[int, memoryview], _Answer],
        timeout_ms: int | None = None,
    ) -> _Answer: ...

    def post(
        self, api_key: int, version: int, body: Sequence[Buffer], timeout_ms: int | None = None
    ) -> None: ...


Connect = Callable[[HostPort], Connection]
"""Makes a connection to an address without opening it."""


class ReconnectingConnection:
    """A connection to one broker that opens when there is something to send, and again after a failure.

    `new_connection` makes it without opening it, and may raise ChannelError. One thread sends at a time;
    `close` may be called by another one.
    """

    def __init__(self, new_connection: Callable[[], Connection]) -> None:
        self._new_connection = new_connection
        self._connection: Connection | None = None
        self._closed = False

    def send(self, request: Entity) -> Entity:
        """Send a request and wait for the answer. Raises ChannelError.

        A broker closes connections that were idle for long, and only the next request shows it. So a request
        that loses a connection opened earlier is sent once more on a new one.
        """
        return self._on_open(lambda connection: connection.send(request))

    def request(
        self,
        api_key: int,
        version: int,
        body: Sequence[Buffer],
        decode: Callable[[int, memoryview], _Answer],
    ) -> _Answer:
        """As `send`, with a request that is bytes already; `decode` reads the body of the answer."""
        return self._on_open(lambda connection: connection.request(api_key, version, body, decode))

    def version_of(self, api_key: int) -> int:
        """The highest version of an API that both sides support; connects if there is no connection.

        Raises ChannelError, UnsupportedApiError.
        """
        return self._opened().version_of(api_key)

    def _on_open(self, ask: Callable[[Connection], _Answer]) -> _Answer:
        was_open = self._connection is not None and self._connection.connected
        try:
            return ask(self._opened())
        except ConnectionLostError:
            if not was_open or self._closed:
                raise
            return ask(self._opened())

    def _opened(self) -> Connection:
        self._require_open()
        if self._connection is None or not self._connection.connected:
            self._connection = self._new_connection()
            self._connection.connect()
            self._require_open()
        return self._connection

    def _require_open(self) -> None:
        if self._closed:
            # While a connection is being opened, `close` cannot close it.
            if self._connection is not None:
                self._connection.close()
            raise ConnectionLostError("this side has closed the connection")

    def close(self) -> None:
        """Close the connection. A `send` that waits in another thread fails."""
        self._closed = True
        if self._connection is not None:
            self._connection.close()
