"""The phases of a connection: TLS handshake, authentication, open. A listener has the phases that it needs.

While a connection authenticates, its frames go to the `Authentication` that its listener made for it, and
none becomes a request. When that has named a principal the connection is open.
"""

from __future__ import annotations

from enum import Enum, auto


class Phase(Enum):
    """What the bytes of a connection are at present."""

    TLS_HANDSHAKE = auto()
    AUTHENTICATION = auto()
    OPEN = auto()
