"""Encrypts and decrypts dynamic configs of type password, as Kafka stores them in the tree.

Rules: KIP-226; `password.encoder.*` of Kafka's documentation, "Broker Configs"; PBKDF2 (RFC 8018), AES in CBC
mode with PKCS #7 padding, or in GCM. A stored secret names its algorithms, so that it can be decrypted after
the configured ones have changed. Needs the package `cryptography`, which is imported when it is used.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from klog.config.broker import BrokerConfig
from klog.config.keys import INT32_MAX
from klog.formats.errors import UsageError
from klog.formats.optional import install_command

SECRET: Final = "password.encoder.secret"  # noqa: S105 (a config's name)
OLD_SECRET: Final = "password.encoder.old.secret"  # noqa: S105

_KEY_FACTORIES: Final[Mapping[str, str]] = {
    f"PBKDF2WithHmacSHA{size}": f"sha{size}" for size in ("1", "224", "256", "384", "512")
}
_DEFAULT_KEY_FACTORY: Final = "PBKDF2WithHmacSHA512"
_CBC: Final = "AES/CBC/PKCS5Padding"
_GCM: Final = "AES/GCM/NoPadding"
_KEY_BITS: Final = (128, 192, 256)
_BLOCK_BITS: Final = 128
_SALT_BYTES: Final = 256
_CBC_VECTOR_BYTES: Final = 16
_GCM_VECTOR_BYTES: Final = 12
_GCM_TAG_BITS: Final = 128
_ENCRYPTED: Final = "encryptedPassword"


@dataclass(frozen=True, slots=True)
class PasswordEncoder:
    """Encrypts and decrypts with one secret. The algorithms are those for encryption."""

    secret: str = field(repr=False)
    cipher: str = _CBC
    key_bits: int = 128
    iterations: int = 4096
    key_factory: str = _DEFAULT_KEY_FACTORY
    random_bytes: Callable[[int], bytes] = os.urandom

    def encode(self, text: str) -> str:
        """The encrypted form of a text. Raises `UsageError` for unknown algorithms."""
        salt = self.random_bytes(_SALT_BYTES)
        vector = self.random_bytes(_GCM_VECTOR_BYTES if self.cipher == _GCM else _CBC_VECTOR_BYTES)
        key = self._key(self.key_factory, salt, self.iterations, self.key_bits)
        fields = {
            "keyFactoryAlgorithm": self.key_factory,
            "cipherAlgorithm": self.cipher,
            "keyLength": str(self.key_bits),
            "salt": _text64(salt),
            "iterations": str(self.iterations),
            _ENCRYPTED: _text64(_encrypt(self.cipher, key, vector, text.encode())),
            "passwordLength": str(_java_length(text)),
            "initializationVector": _text64(vector),
        }
        if self.cipher == _GCM:
            fields["authenticationTagLength"] = str(_GCM_TAG_BITS)
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, stored: str) -> str:
        """The text of an encrypted form.

        Raises `UsageError` if it is invalid or was encrypted with another secret.
        """
        fields = dict(part.strip().rpartition(":")[::2] for part in stored.split(","))
        try:
            key = self._key(
                fields["keyFactoryAlgorithm"],
                base64.b64decode(fields["salt"], validate=True),
                int(fields["iterations"]),
                int(fields["keyLength"]),
            )
            vector = base64.b64decode(fields["initializationVector"], validate=True)
            encrypted = base64.b64decode(fields[_ENCRYPTED], validate=True)
            text = _decrypt(fields["cipherAlgorithm"], key, vector, encrypted).decode()
            intact = _java_length(text) == int(fields["passwordLength"])
        except (KeyError, ValueError) as error:
            raise UsageError(f"it is not a secret that was encrypted with this {SECRET}: {error}") from error
        if not intact:
            raise UsageError(f"it was encrypted with another {SECRET}")
        return text

    def _key(self, key_factory: str, salt: bytes, iterations: int, bits: int) -> bytes:
        digest = _KEY_FACTORIES.get(key_factory)
        if digest is None:
            raise UsageError(f"password.encoder.keyfactory.algorithm {key_factory} is not known here")
        if bits not in _KEY_BITS:
            raise UsageError(f"password.encoder.key.length {bits} is not one of AES: 128, 192 or 256")
        if not 0 < iterations <= INT32_MAX:
            raise UsageError(f"password.encoder.iterations {iterations} is too few or too many")
        return hashlib.pbkdf2_hmac(digest, self.secret.encode(), salt, iterations, bits // 8)


def is_encrypted(stored: str) -> bool:
    """Whether a text has an encrypted form, with whichever secret."""
    return f"{_ENCRYPTED}:" in stored


def encoder_of(config: BrokerConfig, secret: str = SECRET) -> PasswordEncoder | None:
    """The encoder of a broker's configs; None if the secret is not set."""
    known = config.text(secret)
    if known is None:
        return None
    return PasswordEncoder(
        known,
        config.text("password.encoder.cipher.algorithm") or _CBC,
        config.number("password.encoder.key.length"),
        config.number("password.encoder.iterations"),
        config.text("password.encoder.keyfactory.algorithm") or _DEFAULT_KEY_FACTORY,
    )


def _java_length(text: str) -> int:
    """The length in Java, which counts UTF-16 units."""
    return len(text.encode("utf-16-le")) // 2


def _text64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _encrypt(cipher: str, key: bytes, vector: bytes, data: bytes) -> bytes:
    """Raises `UsageError`."""
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.padding import PKCS7
    except ImportError as error:
        raise _missing() from error
    if cipher == _GCM:
        return AESGCM(key).encrypt(vector, data, None)
    if cipher == _CBC:
        padder = PKCS7(_BLOCK_BITS).padder()
        encryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
        return encryptor.update(padder.update(data) + padder.finalize()) + encryptor.finalize()
    raise _unknown(cipher)


def _decrypt(cipher: str, key: bytes, vector: bytes, data: bytes) -> bytes:
    """Raises `UsageError`, `ValueError`."""
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.padding import PKCS7
    except ImportError as error:
        raise _missing() from error
    if cipher == _GCM:
        try:
            return AESGCM(key).decrypt(vector, data, None)
        except InvalidTag as error:
            raise ValueError("the authentication tag does not fit") from error
    if cipher == _CBC:
        decryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor()
        unpadder = PKCS7(_BLOCK_BITS).unpadder()
        return unpadder.update(decryptor.update(data) + decryptor.finalize()) + unpadder.finalize()
    raise _unknown(cipher)


def _missing() -> UsageError:
    return UsageError("secrets in the tree need the package cryptography", cure=install_command("secrets"))


def _unknown(cipher: str) -> UsageError:
    return UsageError(
        f"password.encoder.cipher.algorithm {cipher} is not known here", cure=f"use {_CBC} or {_GCM}"
    )
