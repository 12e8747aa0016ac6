"""The phases of a connection: TLS handshake, authentication, open. A listener has the phases that it needs.

While a connection authenticates, its frames go to the `Authentication` that its listener made for it, and
none becomes a request. When that has named a principal the connection is open.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple, Protocol

from klog.security.principal import KafkaPrincipal


class Phase(Enum):
    """What the bytes of a connection are at present."""

    TLS_HANDSHAKE = auto()
    AUTHENTICATION = auto()
    OPEN = auto()


class AuthenticationStep(NamedTuple):
    """What one frame has led to.

    `answer` is sent as it stands, so it holds the sizes of its frames. If `principal` is set the client has
    authenticated. If `failed` is set the connection closes after the answer, both later by
    `connection.failed.authentication.delay.ms`.
    """

    answer: bytes = b""
    principal: KafkaPrincipal | None = None
    failed: bool = False


class Authentication(Protocol):
    """The exchange of one connection. Called by its network thread, so it must be quick."""

    max_frame_bytes: int
    """A larger frame closes the connection."""

    def take_frame(self, frame: bytearray) -> AuthenticationStep:
        """Takes the next frame, without its size. What it raises closes the connection at once."""
