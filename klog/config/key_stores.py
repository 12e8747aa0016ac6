"""Reads Java's key stores and trust stores, PKCS12 and JKS, as PEM, which OpenSSL understands.

Rules: PKCS12 (RFC 7292) is read by the package `cryptography`. JKS is read by `java_key_store`, for no
package that installs without a compiler does it. As in the JDK the bytes decide: a store that is called JKS
may be PKCS12, and the other way round.
"""

from __future__ import annotations

import base64
import textwrap
from typing import TYPE_CHECKING, Final

from klog.formats.errors import FormatError, UnsupportedFormatError, UsageError
from klog.formats.optional import install_command

if TYPE_CHECKING:
    from klog.config.java_key_store import JavaKeyStore

_PKCS12_TAG: Final = b"\x30"
_JCEKS_MAGIC: Final = bytes.fromhex("cececece")


def trust_store_pem(data: bytes, password: str | None) -> str:
    """The certificates of a trust store as PEM. Without a password a JKS is read and not verified.

    Raises FormatError if there is none or the password is wrong, UsageError if a package is missing.
    """
    java = _java_key_store(data, password)
    certificates = java.certificates() if java else list(_pkcs12(data, password)[1])
    if not certificates:
        raise FormatError("there is no certificate in it")
    return "".join(_pem("CERTIFICATE", certificate) for certificate in certificates)


def key_store_pem(data: bytes, password: str | None, key_password: str | None = None) -> str:
    """The private key of a key store, not encrypted, and its certificates, as PEM.

    `key_password` is that of the key, if it is another than that of the store. Raises FormatError,
    UsageError.
    """
    key: bytes | None
    if java := _java_key_store(data, password):
        entry = java.key_entry()
        key, certificates = entry.private_key(key_password or password or ""), entry.chain
    else:
        key, certificates = _pkcs12(data, password)
    if key is None or not certificates:
        raise FormatError("there is no private key with a certificate in it")
    return _pem("PRIVATE KEY", key) + "".join(_pem("CERTIFICATE", each) for each in certificates)


def _java_key_store(data: bytes, password: str | None) -> JavaKeyStore | None:
    """A JKS. None if it is PKCS12."""
    # Here, because it loads Construct, which a broker without such stores does not need.
    from klog.config import java_key_store

    if data.startswith(java_key_store.MAGIC):
        return java_key_store.parse(data, password)
    if data.startswith(_JCEKS_MAGIC):
        raise UnsupportedFormatError(
            "it is JCEKS, which klog does not read", cure="keytool -importkeystore makes PKCS12 of it"
        )
    if not data.startswith(_PKCS12_TAG):
        raise FormatError("it is neither PKCS12 nor JKS", cure="set the type of the store: PEM?")
    return None


def _pkcs12(data: bytes, password: str | None) -> tuple[bytes | None, tuple[bytes, ...]]:
    """The private key (PKCS8, DER), None without one, and the certificates (DER), that of the key first."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise UsageError(
            "PKCS12 stores need the package cryptography", cure=install_command("secrets")
        ) from error
    try:
        found = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise FormatError(f"it cannot be read as PKCS12: {error}", cure="is its password right?") from error
    der = serialization.Encoding.DER
    key = None
    if found.key is not None:
        key = found.key.private_bytes(der, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    holders = [each for each in (found.cert, *found.additional_certs) if each is not None]
    return key, tuple(each.certificate.public_bytes(der) for each in holders)


def _pem(label: str, der: bytes) -> str:
    lines = textwrap.wrap(base64.b64encode(der).decode(), 64)
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""))
