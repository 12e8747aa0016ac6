"""PLAIN: the client sends its name and its password.

Rules: RFC 4616; Kafka's `PlainSaslServer` and `PlainServerCallbackHandler`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from klog.security.authentication.errors import RefusedLoginError
from klog.security.authentication.steps import Login, Reply

PLAIN: Final = "PLAIN"
_MOST_TOKENS: Final = 4  # Kafka counts no further


@dataclass(frozen=True, slots=True)
class Plain:
    """`passwords` by user."""

    passwords: Mapping[str, str] = field(repr=False)

    def respond(self, message: bytes) -> Reply:
        """Takes the only message: `authorization id NUL user NUL password`."""
        tokens = message.decode("utf-8", "replace").split("\0", _MOST_TOKENS - 1)
        if len(tokens) != 3:
            raise RefusedLoginError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(tokens)}")
        acting_as, user, password = tokens
        if not user:
            raise RefusedLoginError("Authentication failed: username not specified")
        if not password:
            raise RefusedLoginError("Authentication failed: password not specified")
        if not self._is_right(user, password):
            raise RefusedLoginError("Authentication failed: Invalid username or password")
        require_same_name(acting_as, user)
        return Reply(b"", Login(user))

    def _is_right(self, user: str, password: str) -> bool:
        """Takes the same time for every user, known or not, and every password."""
        expected = self.passwords.get(user)
        is_equal = hmac.compare_digest(_digest(expected or ""), _digest(password))
        return is_equal and expected is not None


def require_same_name(acting_as: str, user: str) -> None:
    """Nobody acts for another user: an authorization id is empty or the user. Raises RefusedLoginError."""
    if acting_as not in ("", user):
        raise RefusedLoginError(
            "Authentication failed: Client requested an authorization id that is different from username"
        )


def _digest(password: str) -> bytes:
    # Of one length: a comparison of texts of different length tells the length.
    return hashlib.sha256(password.encode("utf-8", "surrogatepass")).digest()
