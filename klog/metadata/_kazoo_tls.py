"""kazoo's threads with connections through a TLS context. kazoo itself would make one of PEM files only.

It is imported when it is used, as kazoo.
"""

from __future__ import annotations

import socket
import ssl

from kazoo.handlers.threading import SequentialThreadingHandler


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """`failure` is why the last handshake failed; kazoo tries again and says nothing of it."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self.failure: ssl.SSLError | None = None
        self._context = context

    def create_connection(
        self,
        address: tuple[str, int],
        hostname: str | None = None,
        timeout: float | None = None,
        **_: object,  # how kazoo would make a context
    ) -> ssl.SSLSocket:
        """A connection to a server. Raises OSError."""
        sock = socket.create_connection(address, timeout)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            secured = self._context.wrap_socket(sock, server_hostname=hostname or address[0])
        except ssl.SSLError as error:
            self.failure = error
            sock.close()
            raise
        except BaseException:
            sock.close()
            raise
        self.failure = None
        return secured
