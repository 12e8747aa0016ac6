"""The addresses of hosts."""

from __future__ import annotations

import socket


def address_of(host: str) -> str:
    """The first address of a host, which may be an address already, as the acceptor names its clients.

    Raises OSError if there is none. It may wait for a name server.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host!r} cannot be the name of a host") from error
    return str(found[0][4][0]).removeprefix("::ffff:")
