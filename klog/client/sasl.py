"""Authenticates a connection by SASL: PLAIN (RFC 4616), SCRAM (RFC 5802, RFC 7677) or OAUTHBEARER.

Rules: KIP-43, KIP-84 (SCRAM), KIP-152: after ApiVersions a SaslHandshake names the mechanism. Its messages
follow in SaslAuthenticate requests.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from klog.client.connection import Connection
from klog.client.requests import ask
from klog.client.sasl_oauth import OAUTHBEARER, OAuthBearer, oauth_bearer
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import AuthenticationFailedError

SCRAM_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
PASSWORD_MECHANISMS: Final = ("PLAIN", *SCRAM_HASHES)
MECHANISMS: Final = (*PASSWORD_MECHANISMS, OAUTHBEARER)
_BY_TOKEN: Final = ",tokenauth=true"  # noqa: S105 (an extension of SCRAM, KIP-48)
_FEWEST_ITERATIONS: Final = 4096  # Kafka's own minimum
_MOST_ITERATIONS: Final = 1 << 24  # a server must not be able to occupy the client for hours

Exchange = Generator[bytes, bytes, None]
"""Gives the client's messages, and is sent the server's answer to each. Raises AuthenticationFailedError."""


@dataclass(frozen=True, slots=True)
class Sasl:
    """User name and password for SASL PLAIN or SCRAM. With `by_token` they are the id and the HMAC of a
    delegation token, for SCRAM.
    """

    mechanism: str
    username: str
    password: str = field(repr=False)
    by_token: bool = False


Login = Sasl | OAuthBearer
"""Who the client is."""


def authenticate(connection: Connection, sasl: Login, nonce: str) -> int:
    """Authenticate an open connection; `nonce` is a random text of printable ASCII without commas.

    Returns for how many ms the login is valid, 0 if it does not end. Raises AuthenticationFailedError,
    ChannelError.
    """
    answer = ask(connection, ApiKey.SASL_HANDSHAKE, mechanism=sasl.mechanism)
    if answer.error_code != ErrorCode.NONE:
        offered = ", ".join(answer.mechanisms) or "none"
        raise AuthenticationFailedError(
            f"{connection} does not accept sasl.mechanism={sasl.mechanism}", cure=f"it offers {offered}"
        )
    exchange = _exchange(sasl, nonce)
    lifetime_ms = 0
    try:
        message = next(exchange)
        while True:
            reply, lifetime_ms = _ask(connection, message)
            message = exchange.send(reply)
    except StopIteration:
        return lifetime_ms
    except AuthenticationFailedError as error:
        raise error.at(str(connection)) from None


def _exchange(sasl: Login, nonce: str) -> Exchange:
    if isinstance(sasl, OAuthBearer):
        return oauth_bearer(sasl)
    return plain(sasl) if sasl.mechanism == "PLAIN" else scram(sasl, nonce)


def _ask(connection: Connection, message: bytes) -> tuple[bytes, int]:
    """The server's message, and for how many ms the login is valid."""
    answer = ask(connection, ApiKey.SASL_AUTHENTICATE, auth_bytes=message)
    code = error_code(answer.error_code)
    if code is not ErrorCode.NONE:
        said = answer.error_message or code.name
        raise AuthenticationFailedError(said, cure="check sasl.mechanism and sasl.jaas.config")
    lifetime = getattr(answer, "session_lifetime", timedelta())  # since version 1
    return bytes(answer.auth_bytes), lifetime // timedelta(milliseconds=1)


def plain(sasl: Sasl) -> Exchange:
    """The only message of PLAIN."""
    yield f"\0{sasl.username}\0{sasl.password}".encode()


def scram(sasl: Sasl, nonce: str) -> Exchange:
    """The two messages of SCRAM, and the check that the server knows the password, too."""
    name = SCRAM_HASHES[sasl.mechanism]
    escaped = sasl.username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={escaped},r={nonce}{_BY_TOKEN if sasl.by_token else ''}"
    challenge = yield f"n,,{first}".encode()
    fields = _fields(challenge)
    both_nonces = fields.get("r", "")
    salt, iterations = _salt_and_iterations(fields)
    if not both_nonces.startswith(nonce) or both_nonces == nonce:
        raise AuthenticationFailedError("the server's nonce does not continue the client's")
    without_proof = f"c=biws,r={both_nonces}"  # "n,," in base64: no channel binding
    signed = f"{first},{challenge.decode()},{without_proof}".encode()
    salted = hashlib.pbkdf2_hmac(name, sasl.password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", name)
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    verdict = _fields((yield f"{without_proof},p={b64encode(proof).decode()}".encode()))
    if "e" in verdict:
        raise AuthenticationFailedError(f"the server refused: {verdict['e']}")
    server_key = hmac.digest(salted, b"Server Key", name)
    expected = b64encode(hmac.digest(server_key, signed, name))
    if not hmac.compare_digest(verdict.get("v", "").encode(), expected):
        raise AuthenticationFailedError("the server did not prove that it knows the password")


def _salt_and_iterations(fields: dict[str, str]) -> tuple[bytes, int]:
    try:
        salt, iterations = b64decode(fields["s"], validate=True), int(fields["i"])
    except (KeyError, ValueError) as error:
        raise AuthenticationFailedError("the server's SCRAM message has no salt and iterations") from error
    if not _FEWEST_ITERATIONS <= iterations <= _MOST_ITERATIONS:
        raise AuthenticationFailedError(f"the server asks for {iterations} iterations of SCRAM")
    return salt, iterations


def _fields(message: bytes) -> dict[str, str]:
    """The `k=value` fields of a SCRAM message."""
    try:
        text = message.decode()
    except UnicodeDecodeError as error:
        raise AuthenticationFailedError("the server's SCRAM message is no text") from error
    return {
        name: value for name, equals, value in (part.partition("=") for part in text.split(",")) if equals
    }
