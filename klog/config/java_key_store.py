"""Reads JKS, the JDK's old format of key stores.

Rules: the JDK's `JavaKeyStore` and `KeyProtector`: entries in one sequence, numbers in big-endian order, and
behind them SHA-1 over the password, a fixed text and all that precedes. A private key is PKCS8 combined by
exclusive or with a sequence of SHA-1 hashes, each over the password and the last one.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from construct import (
    Bytes,
    Const,
    ConstructError,
    GreedyBytes,
    If,
    Int16ub,
    Int32ub,
    Int64ub,
    OneOf,
    PascalString,
    Prefixed,
    PrefixedArray,
    Struct,
    Switch,
    this,
)

from klog.formats.errors import FormatError

MAGIC: Final = bytes.fromhex("feedfeed")
_KEY, _CERTIFICATE = 1, 2
_DIGEST_SIZE: Final = 20
_DIGESTED_TEXT: Final = b"Mighty Aphrodite"  # the JDK's, in JavaKeyStore
_WRONG_PASSWORD: Final = "is its password right?"  # noqa: S105 (a question)

_BLOB: Final = Prefixed(Int32ub, GreedyBytes)
_CERTIFICATE_ENTRY: Final = Struct(
    "type" / If(lambda context: context._root.version > 1, PascalString(Int16ub, "utf-8")), "der" / _BLOB
)
_ENTRY: Final = Struct(
    "tag" / OneOf(Int32ub, (_KEY, _CERTIFICATE)),
    "alias" / PascalString(Int16ub, "utf-8"),
    "created_ms" / Int64ub,
    "content"
    / Switch(
        this.tag,
        {
            _KEY: Struct("protected_key" / _BLOB, "chain" / PrefixedArray(Int32ub, _CERTIFICATE_ENTRY)),
            _CERTIFICATE: _CERTIFICATE_ENTRY,
        },
    ),
)
JAVA_KEY_STORE: Final = Struct(
    "magic" / Const(MAGIC),
    "version" / OneOf(Int32ub, (1, 2)),
    "entries" / PrefixedArray(Int32ub, _ENTRY),
    "digest" / Bytes(_DIGEST_SIZE),
)


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A private key, as it is protected, and the chain of certificates (DER) of its public key."""

    protected: bytes
    chain: tuple[bytes, ...]

    def private_key(self, password: str) -> bytes:
        """The key as PKCS8 in DER. Raises FormatError if the password is wrong."""
        secret = password.encode("utf-16-be")
        inner = _octets_of_protected(self.protected)
        salt, check = inner[:_DIGEST_SIZE], inner[-_DIGEST_SIZE:]
        hidden = inner[_DIGEST_SIZE:-_DIGEST_SIZE]
        stream = bytearray()
        block = salt
        while len(stream) < len(hidden):
            block = _sha1(secret + block)
            stream += block
        key = bytes(a ^ b for a, b in zip(hidden, stream, strict=False))
        if not hmac.compare_digest(_sha1(secret + key), check):
            raise FormatError("its private key has another password", cure="ssl.key.password")
        return key


@dataclass(frozen=True, slots=True)
class JavaKeyStore:
    """The entries of a store."""

    keys: tuple[KeyEntry, ...]
    trusted: tuple[bytes, ...]

    def certificates(self) -> list[bytes]:
        """The certificates that the store trusts (DER)."""
        return list(self.trusted)

    def key_entry(self) -> KeyEntry:
        """The first private key. Raises FormatError if there is none."""
        if not self.keys:
            raise FormatError("there is no private key in it")
        return self.keys[0]


def parse(data: bytes, password: str | None) -> JavaKeyStore:
    """The entries of a store. With a password its digest is checked. Raises FormatError."""
    try:
        store = JAVA_KEY_STORE.parse(data)
    except (ConstructError, UnicodeDecodeError) as error:
        raise FormatError("it is a JKS that ends too early or is damaged") from error
    if password is not None:
        digest = _sha1(password.encode("utf-16-be") + _DIGESTED_TEXT + data[:-_DIGEST_SIZE])
        if not hmac.compare_digest(digest, data[-_DIGEST_SIZE:]):
            raise FormatError("its digest does not fit", cure=_WRONG_PASSWORD)
    keys = [
        KeyEntry(entry.content.protected_key, _ders(entry.content.chain))
        for entry in store.entries
        if entry.tag == _KEY
    ]
    trusted = [entry.content for entry in store.entries if entry.tag == _CERTIFICATE]
    return JavaKeyStore(tuple(keys), _ders(trusted))


def _ders(entries: Sequence[Any]) -> tuple[bytes, ...]:
    return tuple(entry.der for entry in entries)


def _octets_of_protected(der: bytes) -> bytes:
    """The octets of an EncryptedPrivateKeyInfo (RFC 5958): a sequence of an algorithm and an octet string.

    Raises FormatError.
    """
    sequence = _value(der, 0x30)
    algorithm_size = len(sequence) - len(_after(sequence))
    octets = _value(sequence[algorithm_size:], 0x04)
    if len(octets) < 2 * _DIGEST_SIZE:
        raise FormatError("its private key is too short")
    return octets


def _value(der: bytes, tag: int) -> bytes:
    if not der or der[0] != tag:
        raise FormatError("its private key is damaged")
    start, size = _start_and_size(der)
    return der[start : start + size]


def _after(der: bytes) -> bytes:
    start, size = _start_and_size(der)
    return der[start + size :]


def _start_and_size(der: bytes) -> tuple[int, int]:
    """Where the content of a DER value starts and how long it is. Raises FormatError."""
    count = der[1] & 0x7F if len(der) > 1 and der[1] & 0x80 else 0
    start = 2 + count
    size = int.from_bytes(der[2:start], "big") if count else der[1] if len(der) > 1 else 0
    if len(der) < start + size:
        raise FormatError("its private key is damaged")
    return start, size


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data).digest()
