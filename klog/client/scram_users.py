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
from klog.client.errors import RefusedError
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import build, request_class, request_struct

LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16384


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
    connection = cluster.any_connection()
    version = connection.version_of(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
    user = request_struct(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, version, "UserName")
    wanted = None if names is None else tuple(build(user, name=name) for name in names)
    answer = connection.send(
        build(request_class(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, version), users=wanted)
    )
    if answer.error_code != ErrorCode.NONE:
        raise RefusedError("users", answer.error_code, message=answer.error_message)
    found = []
    for result in answer.results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        if result.error_code != ErrorCode.NONE:
            raise RefusedError(f"user {result.user}", result.error_code, message=result.error_message)
        iterations = {
            ScramMechanism(each.mechanism): int(each.iterations) for each in result.credential_infos
        }
        found.append(ScramUser(result.user, dict(sorted(iterations.items()))))
    return sorted(found, key=lambda each: each.name)


def alter_users(
    cluster: Cluster, upsertions: Sequence[Upsertion], deletions: Sequence[Deletion] = ()
) -> None:
    """Set and remove credentials. Raises RefusedError for the first user that is refused, ChannelError."""

    def request(version: int) -> Entity:
        deletion, upsertion = (
            request_struct(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, version, name)
            for name in ("ScramCredentialDeletion", "ScramCredentialUpsertion")
        )
        return build(
            request_class(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, version),
            deletions=tuple(
                build(deletion, name=each.user, mechanism=int(each.mechanism)) for each in deletions
            ),
            upsertions=tuple(
                build(
                    upsertion,
                    name=each.user,
                    mechanism=int(each.mechanism),
                    iterations=each.iterations,
                    salt=each.salt,
                    salted_password=each.salted_password,
                )
                for each in upsertions
            ),
        )

    def codes(answer: Entity) -> list[int]:
        return [each.error_code for each in answer.results]

    for each in ask_controller(cluster, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request, codes).results:
        if each.error_code != ErrorCode.NONE:
            raise RefusedError(f"user {each.user}", each.error_code, message=each.error_message)
