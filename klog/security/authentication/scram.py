"""SCRAM-SHA-256 and SCRAM-SHA-512: the client proves that it knows its password without sending it.

Rules: RFC 5802, RFC 7677; Kafka's `ScramSaslServer` and `ScramMessages`: no channel binding, names and nonces
are printable ASCII. With the extension `tokenauth=true` the name is the id of a delegation token; others have
no meaning. An unknown user fails at its first message, as in Kafka.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final, NamedTuple

from klog.security.authentication.delegation_tokens import TokenLogin
from klog.security.authentication.errors import FailedLoginError
from klog.security.authentication.plain import require_same_name
from klog.security.authentication.scram_credentials import HASHES, MIN_ITERATIONS, ScramCredential
from klog.security.authentication.steps import Login, Reply

_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS: Final = rf"(?:,[A-Za-z]+={_VALUE})*"
_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<acting_as>{_NAME}))?,(?:m={_VALUE},)?"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_FINAL: Final = re.compile(
    rf"c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS},p=(?P<proof>{_BASE64})"
)
_BY_TOKEN: Final = re.compile(r",tokenauth=true(?:,|\Z)", re.IGNORECASE)


class _Challenge(NamedTuple):
    """What the client must prove that it knows the password for. `messages` are those so far."""

    login: Login
    credential: ScramCredential
    nonce: str
    messages: str


class Scram:
    """`find` gives a user's credential, `find_token` that of a delegation token; `nonce` makes a random text
    of printable ASCII without commas.
    """

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str], ScramCredential | None],
        nonce: Callable[[], str],
        find_token: Callable[[str], TokenLogin | None] = lambda _: None,
    ) -> None:
        self._hash = HASHES[mechanism]
        self._find = find
        self._find_token = find_token
        self._nonce = nonce
        self._challenge: _Challenge | None = None

    def respond(self, message: bytes) -> Reply:
        """Takes the first message, which names the user, and the second one with the proof."""
        text = message.decode("utf-8", "replace")
        challenge, self._challenge = self._challenge, None
        if challenge is not None:
            return self._verified(challenge, text)
        return self._begun(text)

    def _begun(self, text: str) -> Reply:
        first = _FIRST.fullmatch(text)
        if first is None:
            raise FailedLoginError("the first message of SCRAM is malformed")
        user = first["name"].replace("=2C", ",").replace("=3D", "=")
        by_token = _BY_TOKEN.search(first["extensions"]) is not None
        credential, login = self._by_token(user) if by_token else self._by_password(user)
        require_same_name(first["acting_as"] or "", user)
        if credential.iterations < MIN_ITERATIONS:
            raise FailedLoginError(f"the user's credential has less than {MIN_ITERATIONS} iterations")
        nonce = first["nonce"] + self._nonce()
        salt = b64encode(credential.salt).decode()
        answer = f"r={nonce},s={salt},i={credential.iterations}"
        self._challenge = _Challenge(login, credential, nonce, f"{first['bare']},{answer}")
        return Reply(answer.encode())

    def _by_password(self, user: str) -> tuple[ScramCredential, Login]:
        credential = self._find(user)
        if credential is None:
            raise FailedLoginError("the user has no credential for this mechanism")
        return credential, Login(user)

    def _by_token(self, token_id: str) -> tuple[ScramCredential, Login]:
        found = self._find_token(token_id)
        if found is None:
            raise FailedLoginError("there is no such delegation token")
        return found.credential, Login(found.owner, found.expires_ms, by_token=True)

    def _verified(self, challenge: _Challenge, text: str) -> Reply:
        final = _FINAL.fullmatch(text)
        if final is None:
            raise FailedLoginError("the final message of SCRAM is malformed")
        if not final["nonce"].endswith(challenge.nonce):
            raise FailedLoginError("the final message of SCRAM has another nonce")
        channel = b64encode(b64decode(final["channel"])).decode()
        signed = f"{challenge.messages},c={channel},r={final['nonce']}".encode()
        credential = challenge.credential
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        proof = b64decode(final["proof"])
        if len(proof) != len(signature):
            raise FailedLoginError("the proof has another size than the hash")
        client_key = bytes(a ^ b for a, b in zip(signature, proof, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key):
            raise FailedLoginError("the password is wrong")
        verifier = b64encode(hmac.digest(credential.server_key, signed, self._hash))
        return Reply(b"v=" + verifier, challenge.login)
