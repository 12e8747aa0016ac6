"""A distinguished name is written as Java writes it; the expected texts are of JDK 17's `X500Principal`."""

from __future__ import annotations

import ssl

import pytest

from klog.formats.errors import FormatError
from klog.server.network.certificates import subject_of, write_name
from tests.server.network.servers import TLS_FILES

UTF8, NUMERIC, PRINTABLE, T61, IA5, VISIBLE, UNIVERSAL, BMP = 12, 18, 19, 20, 22, 26, 28, 30
CN, SERIAL, C, L, ST, STREET, ORG, OU, TITLE = (bytes((0x55, 4, n)) for n in (3, 5, 6, 7, 8, 9, 10, 11, 12))
UID, DC = (bytes.fromhex("0992268993f22c6401") + bytes((n,)) for n in (1, 25))
EMAIL = bytes.fromhex("2a864886f70d010901")


def name(*attributes: tuple[bytes, str], tag: int = UTF8) -> str:
    return write_name([[(oid, tag, text.encode())] for oid, text in attributes])


def test_the_last_attribute_comes_first():
    assert name((ORG, "Acme"), (OU, "Dev"), (CN, "Alice")) == "CN=Alice,OU=Dev,O=Acme"


def test_attributes_have_the_keywords_of_rfc_2253():
    attributes = (C, "DE"), (ST, "Ber lin"), (L, "x"), (STREET, "s 1"), (DC, "com"), (UID, "u"), (CN, "a")
    assert name(*attributes) == "CN=a,UID=u,DC=com,STREET=s 1,L=x,ST=Ber lin,C=DE"


def test_other_attributes_are_written_as_oid_and_der():
    found = write_name([[(EMAIL, IA5, b"a@b.c")], [(SERIAL, PRINTABLE, b"12")], [(TITLE, UTF8, b"Dr")]])
    assert found == "2.5.4.12=#0c024472,2.5.4.5=#13023132,1.2.840.113549.1.9.1=#16056140622e63"
    assert name((TITLE, "x" * 200)) == "2.5.4.12=#0c81c8" + "78" * 200


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a, b+c=d;e<f>g"h\\i#j', 'a\\, b\\+c\\=d\\;e\\<f\\>g\\"h\\\\i\\#j'),
        (" lead", "\\ lead"),
        ("trail ", "trail\\ "),
        ("   ", "\\ \\ \\ "),
        ("a  b", "a  b"),
        ("#hash", "\\#hash"),
        ("x\0y\nz", "x\\00y\nz"),
        ("älice ☃", "älice ☃"),
        ("", ""),
    ],
)
def test_characters_with_a_meaning_are_escaped(text, expected):
    assert name((CN, text)) == f"CN={expected}"


@pytest.mark.parametrize("tag", [PRINTABLE, T61, IA5, UTF8])
def test_text_of_several_types_is_text(tag):
    assert name((CN, "abc"), tag=tag) == "CN=abc"


def test_wide_text_is_read_as_java_reads_it():
    assert write_name([[(CN, BMP, "bmp".encode("utf-16-be"))]]) == "CN=\\00b\\00m\\00p"


@pytest.mark.parametrize(
    ("tag", "value", "expected"),
    [
        (NUMERIC, b"num", "#12036e756d"),
        (VISIBLE, b"vis", "#1a03766973"),
        (UNIVERSAL, "univ".encode("utf-32-be"), "#1c10000000750000006e0000006900000076"),
    ],
)
def test_values_of_other_types_are_der(tag, value, expected):
    assert write_name([[(CN, tag, value)]]) == f"CN={expected}"


def test_attributes_that_belong_together_are_joined():
    together = [(CN, UTF8, b"b"), (OU, UTF8, b"a"), (UID, UTF8, b"c")]
    assert write_name([[(ORG, UTF8, b"x")], together]) == "CN=b+OU=a+UID=c,O=x"


def test_the_subject_is_read_from_a_certificate():
    pem = (TLS_FILES / "certificate.pem").read_text()
    assert subject_of(ssl.PEM_cert_to_DER_cert(pem)) == "CN=localhost"


@pytest.mark.parametrize("der", [b"", b"\x30\x00", b"no certificate", bytes(range(256))])
def test_what_is_no_certificate_is_an_error(der):
    with pytest.raises(FormatError, match="a certificate cannot be read"):
        subject_of(der)
