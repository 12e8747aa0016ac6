"""Distinguished names as text, as Kafka names a client by its certificate: `CN=Alice,OU=Dev,O=Acme`.

Rules: RFC 2253, as Java's `X500Principal.getName()` applies it. The last attribute comes first. An attribute
without a keyword in RFC 2253, or whose value is no text, is written as OID and hexadecimal DER.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

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
