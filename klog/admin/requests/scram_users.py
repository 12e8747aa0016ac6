"""Asks which users have SCRAM credentials, and sets and removes these (KIP-554).

The password never leaves this process: what is sent is salted and hashed (RFC 5802).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from klog.client.cluster import Cluster
from klog.client.controller import ask_controller
from klog.client.requests import accepted, ask
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode

LEAST_ITERATIONS: Final = 4096


class ScramMechanism(IntEnum):
    """A mechanism, with its number on the wire."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def title(self) -> str:
        """The mechanism's name: `SCRAM-SHA-256`."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The name of its hash in hashlib."""
        return self.name.removeprefix("SCRAM_").replace("_", "").lower()


class ScramUser(NamedTuple):
    """A user with the iterations of the credential of each mechanism."""

    name: str
    iterations: dict[ScramMechanism, int]


class Upsertion(NamedTuple):
    """A credential to set. `salted_password` is PBKDF2 of the password."""

    user: str
    mechanism: ScramMechanism
    iterations: int
    salt: bytes
    salted_password: bytes


class Deletion(NamedTuple):
    """A credential to remove."""

    user: str
    mechanism: ScramMechanism


def salted(
    user: str, password: str, mechanism: ScramMechanism, salt: bytes, iterations: int = LEAST_ITERATIONS
) -> Upsertion:
    """The credential that a password makes."""
    key = hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)
    return Upsertion(user, mechanism, iterations, salt, key)


def describe_users(cluster: Cluster, names: Iterable[str] | None = None) -> list[ScramUser]:
    """These users, or all that have credentials, sorted. A user without any is left out.

    Raises RefusedError, UnsupportedApiError, ChannelError.
    """
    # None would stand for all, too, but Kafka 3.9 does not answer it if this user may not ask.
    wanted = [{"name": name} for name in names or ()]
    answer = accepted(
        ask(cluster.any_connection(), ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, users=wanted),
        "SCRAM users",
        "Describe",
    )
    found = []
    for result in answer.results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        accepted(result, f"user {result.user}")
        iterations = {
            ScramMechanism(each.mechanism): int(each.iterations) for each in result.credential_infos
        }
        found.append(ScramUser(result.user, dict(sorted(iterations.items()))))
    return sorted(found, key=lambda each: each.name)


def alter_users(
    cluster: Cluster, upsertions: Sequence[Upsertion], deletions: Sequence[Deletion] = ()
) -> None:
    """Set and remove credentials. Raises RefusedError for the first user that is refused, ChannelError."""
    values = {
        "deletions": [{"name": each.user, "mechanism": each.mechanism} for each in deletions],
        "upsertions": [
            {
                "name": each.user,
                "mechanism": each.mechanism,
                "iterations": each.iterations,
                "salt": each.salt,
                "salted_password": each.salted_password,
            }
            for each in upsertions
        ],
    }
    for each in ask_controller(cluster, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, values).results:
        accepted(each, f"user {each.user}")
