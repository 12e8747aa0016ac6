"""Cipher suites by Java's names: which of OpenSSL's they are, and what a context then speaks."""

from __future__ import annotations

import ssl
import subprocess

import pytest

from klog.config import cipher_suites
from klog.config.cipher_suites import limit_suites, openssl_name
from klog.formats.errors import UsageError
from tests.peers.kafka import java_environment
from tests.server.network.servers import TLS_FILES

V2, V3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
NEWER = ["TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"]

_PRINT_SUITES = """
import javax.net.ssl.SSLContext;
class Suites {
    public static void main(String[] words) throws Exception {
        for (String each : SSLContext.getDefault().getSupportedSSLParameters().getCipherSuites())
            System.out.println(each);
    }
}
"""


def server(suites: list[str], *versions: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS_FILES / "first.pem")
    context.minimum_version, context.maximum_version = versions or (V2, V3)
    limit_suites(context, suites)
    return context


def client(version: ssl.TLSVersion, suite: str | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    if suite is not None:
        limit_suites(context, [suite])
    return context


def spoken(serving: ssl.SSLContext, asking: ssl.SSLContext) -> str | None:
    """The suite that both agree on; None if they do not."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [asking.wrap_bio(to_client, to_server), serving.wrap_bio(to_server, to_client, server_side=True)]
    waiting = list(sides)
    while waiting:
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                return None
    chosen = sides[0].cipher()
    assert chosen is not None
    return chosen[0]


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA", "DHE-RSA-AES128-SHA"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA256", "AES256-SHA256"),
        ("SSL_RSA_WITH_3DES_EDE_CBC_SHA", "DES-CBC3-SHA"),
        ("TLS_DHE_RSA_WITH_AES_256_CCM_8", "DHE-RSA-AES256-CCM8"),
        ("TLS_RSA_WITH_CAMELLIA_128_CBC_SHA", "CAMELLIA128-SHA"),
        ("ECDHE-RSA-AES256-GCM-SHA384", None),
        ("TLS_RSA_WITH_ALL", None),
        ("ALL", None),
    ],
)
def test_a_suite_has_a_name_of_openssl(java: str, openssl: str | None) -> None:
    assert openssl_name(java) == openssl


@pytest.mark.kafka
def test_every_suite_of_java_is_one_of_openssl(tmp_path) -> None:
    (tmp_path / "Suites.java").write_text(_PRINT_SUITES)
    done = subprocess.run(
        ["java", "Suites.java"], cwd=tmp_path, env=java_environment(), check=True, capture_output=True
    )
    # Certificates of DSA are not used any more, and the last one is no suite.
    names = [each for each in done.stdout.decode().split() if "_DSS_" not in each and "SCSV" not in each]
    assert len(names) > 20
    everything = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    everything.set_ciphers("ALL:@SECLEVEL=0")
    present = {each["name"] for each in everything.get_ciphers()}
    assert {openssl_name(each) or each for each in names} <= present


def test_only_these_suites_of_tls_1_2_are_spoken() -> None:
    serving = server(["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"])
    assert spoken(serving, client(V2)) == "ECDHE-ECDSA-AES128-GCM-SHA256"
    assert (
        spoken(serving, client(V2, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"))
        == "ECDHE-ECDSA-AES256-GCM-SHA384"
    )
    assert spoken(serving, client(V2, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256")) is None
    assert spoken(serving, client(V3)) is None


@pytest.mark.parametrize("suite", NEWER)
def test_only_this_suite_of_tls_1_3_is_spoken(suite: str) -> None:
    serving = server([suite])
    assert spoken(serving, client(V3)) == suite
    assert spoken(serving, client(V2)) is None
    for other in set(NEWER) - {suite}:
        assert spoken(serving, client(V3, other)) is None


def test_the_first_suites_go_first() -> None:
    for suites in (NEWER[:2], NEWER[1::-1]):
        assert spoken(server(suites), client(V3)) == suites[0]
    older = ["TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", *NEWER]
    assert spoken(server(older), client(V2)) == "ECDHE-ECDSA-AES256-SHA384"
    assert spoken(server(older), client(V3)) == NEWER[0]


def test_a_python_that_cannot_limit_suites_says_so(monkeypatch) -> None:
    monkeypatch.setattr(cipher_suites, "_call_openssl", lambda context, names: None)
    with pytest.raises(UsageError, match="this Python cannot limit the suites") as refused:
        server([NEWER[0]])
    assert NEWER[2] in str(refused.value.cure)
    assert spoken(server(NEWER), client(V3)) == NEWER[0]
