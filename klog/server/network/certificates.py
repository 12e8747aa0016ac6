"""Reads the holder of a certificate from its DER bytes.

Rules: X.509 (RFC 5280, section 4.1: Certificate, TBSCertificate; 4.2.1.6: subject alternative name) in DER
(X.690). TLS verifies certificates; nothing is verified here.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from typing import Final, NamedTuple

from klog.formats.errors import FormatError
from klog.server.network.distinguished_names import write_name

_FIRST: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_ALTERNATIVE_NAME: Final = bytes((0x55, 0x1D, 0x11))  # 2.5.29.17
_SEQUENCE, _OCTETS, _VERSION, _EXTENSIONS = 0x30, 0x04, 0xA0, 0xA3
_SUBJECT_FIELD: Final = 4  # after serial number, signature, issuer and validity


class Holder(NamedTuple):
    """The holder of a certificate. `subject` has (OID, text in lower case without surrounding space) of each
    attribute; `names` has the alternative names as they are encoded.
    """

    subject: tuple[tuple[bytes, bytes], ...]
    names: frozenset[bytes]


def holder_of(pem: str) -> Holder:
    """The holder of the first certificate in a PEM text. Raises `FormatError`."""
    found = _FIRST.search(pem)
    if found is None:
        raise FormatError("there is no certificate in it")
    try:
        fields = _certificate_fields(ssl.PEM_cert_to_DER_cert(found[0]))
        subject = tuple(
            (oid, text.strip().lower())
            for attributes in _relative_names(fields[_SUBJECT_FIELD][1])
            for oid, _, text in attributes
        )
        return Holder(subject, _names(fields))
    except (ValueError, IndexError) as error:
        raise FormatError(f"its certificate cannot be read: {error}") from error


def subject_of(certificate: bytes) -> str:
    """The distinguished name in a certificate (DER) as text. Raises `FormatError`."""
    try:
        fields = _certificate_fields(certificate)
        return write_name(_relative_names(fields[_SUBJECT_FIELD][1]))
    except (ValueError, IndexError) as error:
        raise FormatError(f"a certificate cannot be read: {error}") from error


def _certificate_fields(certificate: bytes) -> list[tuple[int, bytes]]:
    """The fields of a certificate's signed part, from the serial number on."""
    fields = list(_fields(_only(_only(certificate), at_least=3)))
    return fields[1:] if fields[0][0] == _VERSION else fields


def _fields(der: bytes) -> Iterator[tuple[int, bytes]]:
    """(tag, content) of each value. Raises `ValueError`, `IndexError`."""
    position = 0
    while position < len(der):
        tag, size = der[position], der[position + 1]
        position += 2
        if size & 0x80:
            length_size = size & 0x7F
            size = int.from_bytes(der[position : position + length_size], "big")
            position += length_size
        if position + size > len(der):
            raise ValueError("a value ends after what holds it")
        yield tag, der[position : position + size]
        position += size


def _only(der: bytes, at_least: int = 1) -> bytes:
    """The content of the first value, a sequence. Raises `ValueError` if there are fewer values."""
    values = list(_fields(der))
    if len(values) < at_least or values[0][0] != _SEQUENCE:
        raise ValueError("it is no X.509 certificate")
    return values[0][1]


def _relative_names(name: bytes) -> Iterator[list[tuple[bytes, int, bytes]]]:
    """(OID, tag, value) of each attribute, by the relative names of a distinguished name."""
    for _, relative in _fields(name):
        attributes = []
        for _, pair in _fields(relative):
            (_, oid), (tag, value) = _fields(pair)
            attributes.append((oid, tag, value))
        yield attributes


def _names(fields: list[tuple[int, bytes]]) -> frozenset[bytes]:
    for tag, content in fields:
        if tag != _EXTENSIONS:
            continue
        for _, extension in _fields(_only(content)):
            parts = list(_fields(extension))
            if parts[0][1] == _ALTERNATIVE_NAME and parts[-1][0] == _OCTETS:
                return frozenset(bytes((tag,)) + name for tag, name in _fields(_only(parts[-1][1])))
    return frozenset()
