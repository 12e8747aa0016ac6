"""SCRAM credentials of users: their text in `/config/users/USER`, and those that a broker knows.

Rules: Kafka's `ScramCredentialUtils`, `ScramMechanism`, `ScramFormatter.generateCredential`; RFC 5802.
Whoever reads a credential cannot log in with it, but can try passwords.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from klog.formats.errors import FormatError

_log = logging.getLogger(__name__)

HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""hashlib's hash of each mechanism."""
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
"""More are not taken from clients; what is stored may have more."""
_FIELDS: Final = {"salt", "stored_key", "server_key", "iterations"}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server knows of a user's password for one mechanism."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def text(self) -> str:
        """As Kafka writes it."""
        salt, stored_key, server_key = (
            b64encode(each).decode() for each in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={self.iterations}"


def parse_credential(text: str) -> ScramCredential:
    """Raises FormatError, which does not show the text."""
    pairs = [part.partition("=") for part in text.split(",")]
    found = {name: value for name, _, value in pairs}
    if found.keys() != _FIELDS:
        raise FormatError("it does not consist of salt, stored_key, server_key and iterations")
    try:
        salt, stored_key, server_key = (
            b64decode(found[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        return ScramCredential(salt, stored_key, server_key, int(found["iterations"]))
    except ValueError:
        raise FormatError("salt or keys are not in base64, or the iterations are no number") from None


def credential_of(mechanism: str, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password (PBKDF2 of password and salt)."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted_password, b"Server Key", name), iterations)


def credential_of_password(
    mechanism: str, password: str, salt: bytes, iterations: int = MIN_ITERATIONS
) -> ScramCredential:
    """The credential of a password. It takes some milliseconds."""
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
    return credential_of(mechanism, salt, salted, iterations)


class ScramCredentials:
    """The credentials of all users that a broker knows. Safe for threads: a user's are replaced at once."""

    def __init__(self) -> None:
        self._by_user: dict[str, Mapping[str, ScramCredential]] = {}

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        """A user's credential, None if there is none."""
        return self._by_user.get(user, {}).get(mechanism)

    def user_changed(self, user: str, configs: Mapping[str, str]) -> None:
        """Takes the credentials in a user's configs; empty ones remove the user. One that cannot be read is
        none: a log line says so.
        """
        found = {}
        for mechanism in HASHES.keys() & configs.keys():
            try:
                found[mechanism] = parse_credential(configs[mechanism])
            except FormatError as error:
                _log.error("The %s credential of user %s is ignored: %s", mechanism, user, error)
        if found:
            self._by_user[user] = found
        else:
            self._by_user.pop(user, None)

    def keep_only(self, users: Collection[str]) -> None:
        """Forgets all other users."""
        for user in self._by_user.keys() - set(users):
            self._by_user.pop(user, None)
