"""Logins that no good client sends: damaged exchanges of SASL, odd tokens, and bytes in place of TLS.

An attack follows from its random numbers. It knows the password or holds a good token only if it says so.
"""

from __future__ import annotations

import hmac
import json
import random
import struct
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import cache
from typing import Final, NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from klog.client.sasl import Exchange, Sasl, plain, scram
from klog.protocol.apis import ApiKey
from klog.protocol.errors import AuthenticationFailedError
from klog.protocol.messages import encode_request_header

USER: Final = "alice"
OTHER_USER: Final = "bob"
PASSWORD: Final = "a password that no attacker guesses, 7f3a9c51"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
CORRELATION_ID: Final = 7
Send = Callable[[bytes], bytes | None]
"""Sends a frame without its size. Gives the answer without its size, None if the connection is closed."""


class Attack(NamedTuple):
    """One login. `knows` says that the attacker has the password or a good token."""

    mechanism: str
    knows: bool
    messages: Exchange


def attack(chance: random.Random) -> Attack:
    """A login by one of the mechanisms."""
    mechanism = chance.choice(MECHANISMS)
    knows = chance.random() < 0.3
    if mechanism == "OAUTHBEARER":
        return Attack(mechanism, knows, _with_token(token(chance, knows=knows), chance))
    login = Sasl(mechanism, USER, PASSWORD if knows else "guess")
    return Attack(mechanism, knows, plain(login) if mechanism == "PLAIN" else scram(login, nonce(chance)))


def nonce(chance: random.Random) -> str:
    return f"{chance.getrandbits(100):x}"


def _with_token(bearer: bytes, chance: random.Random) -> Generator[bytes, bytes, None]:
    acting_as = chance.choice((b"", b"", b"a=alice", b"a=bob", b"a=" + b"x" * 1000))
    extensions = chance.choice((b"", b"", b"key=value\1", b"auth=Bearer x\1", b"k=\1", b"1=2\1"))
    answer = yield b"n," + acting_as + b",\1auth=Bearer " + bearer + b"\1" + extensions + b"\1"
    while answer:
        answer = yield chance.choice((b"\1", b"\1", b"", b"\1\1", bearer))


def play(send: Send, chance: random.Random, made: Attack) -> None:
    """Plays an attack to its end, with damage here and there."""
    damages = chance.choice((0.0, 0.1, 0.5))
    version = chance.choice((0, 1, 1, 1))
    for frame in _before(chance):
        if send(_damaged(chance, frame, damages)) is None:
            return
    if send(_damaged(chance, _handshake(made.mechanism, version), damages)) is None:
        return
    try:
        message = next(made.messages)
        while True:
            answer = send(_damaged(chance, _message(chance, message, version), damages))
            if answer is None:
                return
            message = made.messages.send(_message_of(answer, version))
    except (StopIteration, AuthenticationFailedError, UnicodeError):
        return


def _before(chance: random.Random) -> Iterator[bytes]:
    """What comes before the handshake."""
    for version in chance.choice(((), (0,), (3,), (99, 99, 3), (0, 0))):
        known = min(version, 3)
        head = encode_request_header(ApiKey.API_VERSIONS, known, CORRELATION_ID, "fuzz")
        body = b"\x05klog\x021\0" if known == 3 else b""
        yield head[:2] + struct.pack(">h", version) + head[4:] + body


def _handshake(mechanism: str, version: int) -> bytes:
    name = mechanism.encode()
    head = encode_request_header(ApiKey.SASL_HANDSHAKE, version, CORRELATION_ID, "fuzz")
    return head + struct.pack(">h", len(name)) + name


def _message(chance: random.Random, message: bytes, handshake_version: int) -> bytes:
    """A message of the mechanism: bare, or in SaslAuthenticate 0 or 1."""
    if handshake_version == 0:
        return message
    head = encode_request_header(ApiKey.SASL_AUTHENTICATE, chance.randrange(2), CORRELATION_ID, "fuzz")
    return head + struct.pack(">i", len(message)) + message


def _message_of(answer: bytes, handshake_version: int) -> bytes:
    """The mechanism's message in an answer; empty if there is none."""
    if handshake_version == 0:
        return answer
    size = struct.unpack_from(">h", answer, 6)[0] if len(answer) >= 8 else 0
    return answer[8 + max(size, 0) + 4 :]


def _damaged(chance: random.Random, frame: bytes, damages: float) -> bytes:
    return damaged(chance, frame) if chance.random() < damages else frame


def damaged(chance: random.Random, data: bytes) -> bytes:
    """The bytes with something changed, put in, left out, repeated or cut off; never empty."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(found) or 1)
        kind = chance.randrange(7)
        if kind == 0:
            found[at : at + 1] = bytes((chance.randrange(256),))
        elif kind == 1:
            found[at:at] = chance.randbytes(chance.randint(1, 10))
        elif kind == 2:
            del found[at : at + chance.randint(1, 20)]
        elif kind == 3:
            found[at : at + 2] = struct.pack(">h", chance.choice((-1, 0, 1, 17, 18, 36, 32767, -32768)))
        elif kind == 4:
            found[at : at + 4] = struct.pack(">i", chance.choice((-1, 0, 2**31 - 1, -(2**31), 60)))
        elif kind == 5:
            found[at:at] = found[: chance.randint(0, len(found))] * chance.choice((1, 1, 50))
        else:
            found[at:at] = chance.choice((b",", b"=", b"\0", b"\1", b"n=", b"\xff\xfe", "ä".encode()))
    return bytes(found) or b"\0"


# Tokens.


class _Keys(NamedTuple):
    """A provider's keys, which sign by the algorithms of their names, and those of somebody else."""

    good: Mapping[str, object]
    others: Mapping[str, object]


_ALGORITHMS: Final = {"RS256": "RSA", "PS512": "RSA", "ES256": "EC", "EdDSA": "OKP"}


@cache
def _keys() -> _Keys:
    def made() -> dict[str, object]:
        shared = rsa.generate_private_key(65537, 2048)
        curve, edwards = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
        return {"RS256": shared, "PS512": shared, "ES256": curve, "EdDSA": edwards}

    return _Keys(made(), made())


def key_set() -> str:
    """The public keys of the provider (a JWKS)."""
    found = []
    for algorithm in ("RS256", "ES256", "EdDSA"):
        handler = jwt.get_algorithm_by_name(algorithm)
        public = _keys().good[algorithm].public_key()  # type: ignore[attr-defined]
        found.append({**json.loads(handler.to_jwk(public)), "kid": _ALGORITHMS[algorithm]})
    return json.dumps({"keys": found})


_DEEP: Final = "[" * 5_000 + "]" * 5_000
_ODD: Final = ("null", "true", "-1", "1e400", "NaN", "9" * 400, '""', '" "', "{}", "[]", '["a","a"]', _DEEP)


_ODD_IN_HEADER: Final = ("kid", "typ", "crit", "jwk", "b64")
_ODD_IN_CLAIMS: Final = ("exp", "iat", "nbf", "scope")


def token(chance: random.Random, *, knows: bool) -> bytes:
    """A token of alice: good in most cases if the attacker `knows`, and otherwise never."""
    algorithm = chance.choice(tuple(_ALGORITHMS))
    now_s = int(time.time())
    header = {"alg": f'"{algorithm}"', "kid": f'"{_ALGORITHMS[algorithm]}"'}
    claims = {"sub": '"alice"', "iat": str(now_s - 10), "exp": str(now_s + 600)}
    for part, names in (
        (header, ("kid", "typ", "crit", "jwk", "b64")),
        (claims, ("exp", "iat", "nbf", "scope")),
    ):
        if chance.random() < 0.2:
            part[chance.choice(names)] = chance.choice(_ODD)
    if chance.random() < 0.05:
        claims["note"] = f'"{"x" * chance.choice((10_000, 70_000, 600_000))}"'
    signed = ".".join(_base64(_object(part)) for part in (header, claims)).encode()
    keys = _keys().good if knows else _keys().others
    signature = jwt.get_algorithm_by_name(algorithm).sign(signed, keys[algorithm])
    if knows:
        return signed + b"." + _base64(signature).encode()
    return _forged(chance, signed, signature)


def _forged(chance: random.Random, signed: bytes, signature: bytes) -> bytes:
    """A token that the provider did not sign."""
    header, claims = signed.split(b".")
    kind = chance.randrange(5)
    if kind == 0:
        return _base64(b'{"alg":"none"}').encode() + b"." + claims + b"."
    if kind == 1:
        # The classical mistake: the public key is taken for a shared secret.
        shared = _base64(b'{"alg":"HS256"}').encode() + b"." + claims
        return shared + b"." + _base64(hmac.digest(key_set().encode(), shared, "sha256")).encode()
    if kind == 2:
        return header + b"." + claims
    if kind == 3:
        return chance.choice((b".", b"..", b"....", b"a", b"=" * 100, b"A" * 500_000))
    return signed + b"." + _base64(signature).encode()


def _object(fields: Mapping[str, str]) -> bytes:
    return ("{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}").encode()


def _base64(part: bytes) -> str:
    return urlsafe_b64encode(part).decode().rstrip("=")


# Bytes in place of TLS.


def tls_bytes(chance: random.Random, hello: bytes) -> bytes:
    """What a client sends in place of a handshake; `hello` is a good ClientHello in its record."""
    kind = chance.randrange(6)
    if kind == 0:
        return hello[: chance.randrange(1, len(hello))]
    if kind == 1:
        return damaged(chance, hello)
    if kind == 2:
        return b"".join(_record(chance) for _ in range(chance.choice((1, 3, 1000))))
    if kind == 3:
        # The hello in records of one byte each.
        content, version = hello[5:], hello[1:3]
        return b"".join(b"\x16" + version + b"\0\1" + bytes((byte,)) for byte in content)
    if kind == 4:
        return hello + damaged(chance, hello)
    return chance.choice((b"GET / HTTP/1.1\r\n\r\n", _handshake("PLAIN", 1), chance.randbytes(2000)))


def _record(chance: random.Random) -> bytes:
    """A record of some type. The lengths say more or less than there is."""
    content = chance.randbytes(chance.choice((0, 1, 2, 40)))
    kind = chance.choice((20, 21, 22, 23, 24, chance.randrange(256)))
    size = chance.choice((len(content), len(content), 0, 16_384, 65_535))
    return struct.pack(">BHH", kind, chance.choice((0x0301, 0x0303, 0x0304, 0)), size) + content
