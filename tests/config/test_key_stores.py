"""Java's key stores are read as PEM, with what OpenSSL makes of that as the witness."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.config.key_stores import key_store_pem, trust_store_pem
from klog.formats.errors import FormatError, UnsupportedFormatError

STORES = Path(__file__).parent / "stores"
STORE_PASSWORD = "storepw"
KEY_PASSWORD = "keypw123"


def store(name: str) -> bytes:
    return (STORES / name).read_bytes()


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Connects two contexts in memory. Raises ssl.SSLError if one does not trust the other."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while sides:
        for side in list(sides):
            try:
                side.do_handshake()
                sides.remove(side)
            except ssl.SSLWantReadError:
                pass


@pytest.fixture
def server(tmp_path: Path) -> ssl.SSLContext:
    pem = tmp_path / "server.pem"
    pem.write_text(key_store_pem(store("key.jks"), STORE_PASSWORD, KEY_PASSWORD))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context


@pytest.mark.parametrize("name", ["trust.jks", "trust.p12"])
def test_the_holder_of_a_certificate_in_a_trust_store_is_trusted(server: ssl.SSLContext, name: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, ssl.create_default_context())
    shake_hands(server, ssl.create_default_context(cadata=trust_store_pem(store(name), STORE_PASSWORD)))


def test_a_jks_of_certificates_needs_no_password_as_in_java() -> None:
    assert trust_store_pem(store("trust.jks"), None) == trust_store_pem(store("trust.p12"), STORE_PASSWORD)


@pytest.mark.parametrize(("name", "key_password"), [("key.jks", KEY_PASSWORD), ("key.p12", None)])
def test_key_and_certificate_of_a_key_store_belong_together(tmp_path: Path, name, key_password) -> None:
    pem = tmp_path / "store.pem"
    pem.write_text(key_store_pem(store(name), STORE_PASSWORD, key_password))
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(pem)  # OpenSSL checks that they do


def test_jks_and_pkcs12_of_one_key_are_the_same() -> None:
    assert key_store_pem(store("key.jks"), STORE_PASSWORD, KEY_PASSWORD) == key_store_pem(
        store("key.p12"), STORE_PASSWORD
    )


@pytest.mark.parametrize(
    ("name", "passwords", "problem"),
    [
        ("key.jks", ("wrong", KEY_PASSWORD), "its digest does not fit"),
        ("key.jks", (STORE_PASSWORD,), "private key has another password"),
        ("key.p12", ("wrong",), "cannot be read as PKCS12"),
        ("trust.jks", (STORE_PASSWORD,), "no private key"),
        ("trust.p12", (STORE_PASSWORD,), "no private key"),
        ("README.md", (STORE_PASSWORD,), "neither PKCS12 nor JKS"),
    ],
)
def test_what_is_wrong_with_a_key_store_is_said(name: str, passwords: tuple[str, ...], problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        key_store_pem(store(name), *passwords)


def test_a_key_store_is_no_trust_store() -> None:
    with pytest.raises(FormatError, match="no certificate"):
        trust_store_pem(store("key.jks"), STORE_PASSWORD)


def test_jceks_is_named_with_the_way_out() -> None:
    with pytest.raises(UnsupportedFormatError, match="keytool -importkeystore"):
        trust_store_pem(store("other.jceks"), STORE_PASSWORD)


@given(position=st.integers(0), bit=st.integers(0, 7))
def test_a_damaged_jks_is_noticed(position: int, bit: int) -> None:
    data = bytearray(store("key.jks"))
    data[position % len(data)] ^= 1 << bit
    with pytest.raises(FormatError):
        key_store_pem(bytes(data), STORE_PASSWORD, KEY_PASSWORD)


@given(size=st.integers(0))
def test_a_jks_that_ends_early_is_noticed_without_a_password_too(size: int) -> None:
    data = store("key.jks")
    with pytest.raises(FormatError):
        key_store_pem(data[: size % len(data)], None, KEY_PASSWORD)
