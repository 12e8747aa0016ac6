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


ANONYMOUS: Final = KafkaPrincipal("User", "ANONYMOUS")
