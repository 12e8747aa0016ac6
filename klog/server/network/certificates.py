"""Reads the holder of a certificate from its DER bytes.

Rules: X.509 (RFC 5280, section 4.1: Certificate, TBSCertificate; 4.2.1.6: subject alternative name) in DER
(X.690). TLS verifies certificates; nothing is verified here.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from klog.formats.errors import FormatError

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


# -- Distinguished names as text, as Kafka names a client by its certificate: `CN=Alice,OU=Dev,O=Acme` -------
# Rules: RFC 2253, as Java's `X500Principal.getName()` applies it. The last attribute comes first. An
# attribute without a keyword in RFC 2253, or whose value is no text, is written as OID and hexadecimal DER.

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString. Java reads all as UTF-8.
_TEXTS: Final = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
_ESCAPED: Final = {character: f"\\{character}" for character in ',=+<>#;"\\'} | {"\0": "\\00"}


def write_name(relative_names: Iterable[Iterable[tuple[bytes, int, bytes]]]) -> str:
    """The text of a name: relative names in encoded order, each with (OID, tag, value) of its attributes."""
    written = ["+".join(_attribute(*each) for each in attributes) for attributes in relative_names]
    return ",".join(reversed(written))


def _attribute(encoded_oid: bytes, tag: int, value: bytes) -> str:
    oid = _oid(encoded_oid)
    keyword = _KEYWORDS.get(oid)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or oid}=#{(bytes((tag,)) + _size(value) + value).hex()}"
    return f"{keyword}={_escape(value.decode('utf-8', 'replace'))}"


def _oid(encoded: bytes) -> str:
    """Dotted decimals of an object identifier (X.690, 8.19)."""
    numbers = [0]
    for byte in encoded:
        numbers[-1] = numbers[-1] << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(0)
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:-1])))


def _size(value: bytes) -> bytes:
    """The length octets of DER."""
    size = len(value)
    if size < 0x80:
        return bytes((size,))
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((0x80 | len(octets),)) + octets


def _escape(text: str) -> str:
    inner = text.strip(" ")
    leading = len(text) - len(text.lstrip(" ")) if inner else len(text)
    trailing = len(text) - leading - len(inner)
    escaped = "".join(_ESCAPED.get(character, character) for character in inner)
    return "\\ " * leading + escaped + "\\ " * trailing
