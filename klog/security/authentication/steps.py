"""What a connection and its authentication say to each other.

A mechanism is a state machine from the client's messages to answers; `SaslExchange` puts them into frames.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from klog.security.principal import KafkaPrincipal


class Login(NamedTuple):
    """Who has logged in, and until when the credential is valid (ms of the wall clock; None: for ever).
    `by_token` says that the credential is a delegation token.
    """

    user: str
    expires_ms: int | None = None
    by_token: bool = False


class Reply(NamedTuple):
    """What a mechanism answers. With `login` the exchange is complete."""

    message: bytes
    login: Login | None = None


class Mechanism(Protocol):
    """The server's side of one login."""

    def respond(self, message: bytes) -> Reply:
        """Takes the client's next message. Raises RefusedLoginError, FailedLoginError; then it is over."""


@dataclass(frozen=True, slots=True)
class Session:
    """A login that ends (KIP-368). Times are those of the timers' clock, in ms.

    After `expires_ms` the next request closes the connection, unless it begins a new authentication. `renew`
    begins that; it is allowed from `renewable_from_ms` on.
    """

    expires_ms: int
    renewable_from_ms: int
    renew: Callable[[], Authentication]


class AuthenticationStep(NamedTuple):
    """What one frame has led to.

    `answer` is sent as it stands, so it holds the sizes of its frames. If `principal` is set the client has
    authenticated, for the time of `session` if there is one. If `failed` is set the connection closes after
    the answer, both later by `connection.failed.authentication.delay.ms`; `why` is for the log.
    """

    answer: bytes = b""
    principal: KafkaPrincipal | None = None
    session: Session | None = None
    failed: bool = False
    why: str = ""


class Authentication(Protocol):
    """The exchange of one connection. Called by its network thread, so it must be quick."""

    max_frame_bytes: int
    """A larger frame closes the connection."""

    def take_frame(self, frame: bytearray) -> AuthenticationStep:
        """Takes the next frame, without its size. What it raises closes the connection at once."""
