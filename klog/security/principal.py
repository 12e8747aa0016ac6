"""Who a connection belongs to.

Rules: Kafka's `KafkaPrincipal` and its default principal builder. A principal has a type, `User` by default,
and a name. It is written `Type:name`. Comparison is exact.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class KafkaPrincipal(NamedTuple):
    """The identity of a client: `type` is `User` unless a broker is configured otherwise."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


class TokenPrincipal(KafkaPrincipal):
    """The identity of a client that has logged in by a delegation token. It equals that of the token's owner,
    whose rights it has; only tokens it may not ask for.
    """

    __slots__ = ()


USER: Final = "User"
ANONYMOUS: Final = KafkaPrincipal(USER, "ANONYMOUS")
