"""Decides about changes of SCRAM credentials: which users are refused, and what is written of the others.

Rules: Kafka's `ZkAdminManager.alterUserScramCredentials` and `describeUserScramCredentials` (KIP-554). Users
succeed or fail independently of each other; all changes of a user are one write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klog.protocol.error_codes import ErrorCode
from klog.security.authentication.scram_credentials import (
    HASHES,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    credential_of,
    parse_credential,
)

MECHANISMS: Final[Mapping[int, str]] = dict(enumerate(HASHES, 1))
"""By their numbers on the wire."""
_NO_NAME: Final = "Username must not be empty"
_TWICE: Final = "A user credential cannot be altered twice in the same request"
_NOTHING_TO_DELETE: Final = "Attempt to delete a user credential that does not exist"


class Deletion(NamedTuple):
    """A credential to remove."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class Upsertion:
    """A credential to set."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


class Refusal(NamedTuple):
    """Why nothing is changed, or nothing known, of a user."""

    error: ErrorCode
    message: str


def refusals(upsertions: Sequence[Upsertion], deletions: Sequence[Deletion]) -> dict[str, Refusal]:
    """The users whose changes are refused whatever they have, in Kafka's order."""
    found = {each.user: why for each in deletions if (why := _illegal(each.user, each.mechanism))}
    for each in upsertions:
        why = _illegal(each.user, each.mechanism) or _unacceptable(each.iterations)
        if why is not None:
            found[each.user] = why
    seen: set[tuple[str, int]] = set()
    set_ones = [(each.user, each.mechanism) for each in upsertions]
    for user, mechanism in [*set_ones, *((each.user, each.mechanism) for each in deletions)]:
        if user not in found and (user, mechanism) in seen:
            found[user] = Refusal(ErrorCode.DUPLICATE_RESOURCE, _TWICE)
        seen.add((user, mechanism))
    return found


def _illegal(user: str, mechanism: int) -> Refusal | None:
    if not user:
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, _NO_NAME)
    if mechanism not in MECHANISMS:
        return Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return None


def _unacceptable(iterations: int) -> Refusal | None:
    if iterations > MAX_ITERATIONS:
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if iterations < MIN_ITERATIONS:
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    return None


def changed_config(
    config: Mapping[str, str], upsertions: Iterable[Upsertion], deletions: Iterable[Deletion]
) -> dict[str, str] | Refusal:
    """The config of a user after its changes, which were not refused before."""
    changed = dict(config)
    for each in deletions:
        if changed.pop(MECHANISMS[each.mechanism], None) is None:
            return Refusal(ErrorCode.RESOURCE_NOT_FOUND, _NOTHING_TO_DELETE)
    for one in upsertions:
        mechanism = MECHANISMS[one.mechanism]
        changed[mechanism] = credential_of(mechanism, one.salt, one.salted_password, one.iterations).text()
    return changed


def iterations_in(config: Mapping[str, str]) -> dict[int, int]:
    """The iterations of each of a user's credentials, by the mechanism's number. Raises FormatError."""
    return {
        number: parse_credential(config[name]).iterations
        for number, name in MECHANISMS.items()
        if name in config
    }


def described_names(names: Sequence[str]) -> Iterator[tuple[str, Refusal | None]]:
    """The users that a request names, each once, with why one cannot be described."""
    for name in dict.fromkeys(names):
        if not name:
            yield name, Refusal(ErrorCode.RESOURCE_NOT_FOUND, _NO_NAME)
        elif names.count(name) > 1:
            what = "Cannot describe SCRAM credentials for the same user twice in a single request"
            yield name, Refusal(ErrorCode.DUPLICATE_RESOURCE, f"{what}: {name}")
        else:
            yield name, None


def unknown_user(name: str) -> Refusal:
    """Why a user cannot be described who has no credential."""
    return Refusal(
        ErrorCode.RESOURCE_NOT_FOUND, f"Attempt to describe a user credential that does not exist: {name}"
    )
