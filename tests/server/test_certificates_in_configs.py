"""Certificates and keys of a TLS listener in configs of their own; the tree has them encrypted."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.config.broker import BrokerConfig
from klog.config.keys import ConfigError
from klog.config.pem import Pem
from klog.metadata.configs import read_config
from klog.protocol.error_codes import ErrorCode
from klog.server.network.tls import read_tls
from klog.server.startup.broker import Broker
from tests.server.network.servers import TLS_FILES
from tests.server.test_broker import config
from tests.server.test_reconfiguration import INNER, alter, certificate, first_certificate, shown
from tests.waiting import eventually


def inline(file: str, *, on_one_line: bool = False) -> dict[str, str]:
    """A PEM file as configs of the TLS listener."""
    text = (TLS_FILES / file).read_text()
    start = text.index("-----BEGIN CERTIFICATE")
    stores = {"key": text[:start], "certificate.chain": text[start:]}
    return {
        f"listener.name.ssl.ssl.keystore.{name}": " ".join(each.split("\n")) if on_one_line else each
        for name, each in stores.items()
    }


PROPERTIES = {
    **inline("first.pem"),
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.certificates": first_certificate("first.pem"),
}
KEY, CHAIN = (f"listener.name.ssl.ssl.keystore.{name}" for name in ("key", "certificate.chain"))


def with_secrets(work: Path, **more: str) -> Broker:
    """A broker whose TLS listener has its certificate and key from its properties, not from a file."""
    properties = config(work, listeners=f"{INNER},SSL://127.0.0.1:0").static
    ours = {"password.encoder.secret": "new", "password.encoder.iterations": "1024"}
    return Broker(config(work, **{**properties, **PROPERTIES, **ours, **more}))


def presented_by(broker: Broker) -> str:
    with shown(broker) as connection:
        return certificate(connection)


def test_a_certificate_and_its_key_are_set_while_the_broker_runs_and_hold_from_the_next_start_on(
    tmp_path: Path,
) -> None:
    running = with_secrets(tmp_path / "a")
    try:
        assert presented_by(running) == first_certificate("first.pem")
        assert alter(running, {**inline("renewed.pem", on_one_line=True)}) == (ErrorCode.NONE, None)
        eventually(lambda: presented_by(running) == first_certificate("renewed.pem"))
        stored = read_config(running.store, "brokers/7")
        assert stored.keys() == inline("renewed.pem").keys()
        assert not any("BEGIN" in text or text in ("", "[hidden]") for text in stored.values())
        # What else is changed takes nothing away.
        assert alter(running, {"num.io.threads": "5"}) == (ErrorCode.NONE, None)
    finally:
        running.stop()
    again = with_secrets(tmp_path / "a")
    try:
        assert presented_by(again) == first_certificate("renewed.pem")
        # A key without its certificate would not do.
        assert alter(again, dict.fromkeys([KEY]))[0] == ErrorCode.INVALID_REQUEST
    finally:
        again.stop()


def test_a_new_secret_takes_over_from_the_old_one_at_the_start(tmp_path: Path) -> None:
    old = {"password.encoder.secret": "old"}
    running = with_secrets(tmp_path / "a", **old)
    try:
        assert alter(running, {**inline("renewed.pem")}) == (ErrorCode.NONE, None)
        eventually(lambda: presented_by(running) == first_certificate("renewed.pem"))
    finally:
        running.stop()
    for secrets in ({"password.encoder.old.secret": "old"}, {}):
        again = with_secrets(tmp_path / "a", **secrets)
        try:
            assert presented_by(again) == first_certificate("renewed.pem")
        finally:
            again.stop()


def test_a_secret_is_refused_where_nothing_can_encrypt_it(tmp_path: Path) -> None:
    broker = Broker(config(tmp_path / "a"))
    try:
        error, why = alter(broker, {"listener.name.ssl.ssl.key.password": "x"})
        assert error == ErrorCode.INVALID_CONFIG
        assert "Password encoder secret not configured" in (why or "")
        assert read_config(broker.store, "brokers/7") == {}
    finally:
        broker.stop()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({KEY: "no key"}, "ssl.keystore.key: cannot be used"),
        ({KEY: "no key, no \ud800 text"}, "ssl.keystore.key: cannot be used"),
        ({CHAIN: "no certificate"}, "there is no certificate"),
        ({CHAIN: ""}, "belong together"),
        ({KEY: ""}, "belong together"),
        ({KEY: "", CHAIN: ""}, "needs a key and a certificate chain"),
        ({"ssl.keystore.location": "/nowhere"}, "names another key store"),
        ({"ssl.keystore.password": "s3cret"}, "ssl.keystore.password: a PEM store has no password"),
        ({"ssl.keystore.type": "JKS"}, "a key store of type JKS needs a location and a password"),
        ({"ssl.truststore.location": "/nowhere"}, "no ssl.truststore.location"),
        ({"ssl.truststore.type": "JKS"}, "need ssl.truststore.type=PEM"),
        ({"ssl.truststore.certificates": "no certificate"}, "cannot be used"),
    ],
)
def test_stores_that_do_not_fit_are_refused_and_no_secret_is_shown(changes: dict[str, str], why: str) -> None:
    assert read_tls(BrokerConfig(PROPERTIES), "SSL").context is not None
    with pytest.raises(ConfigError) as refused:
        read_tls(BrokerConfig({**PROPERTIES, **changes}), "SSL")
    assert why in str(refused.value)
    assert not any(secret in str(refused.value) for secret in ("BEGIN", "s3cret", "no key"))


@pytest.mark.parametrize("in_file", [True, False])
def test_what_stands_beside_the_certificates_of_a_trust_store_is_passed_over(
    tmp_path: Path, in_file: bool
) -> None:
    text = "# Zertifikat für Prüfungen\n" + first_certificate("first.pem")
    trusted = {"ssl.truststore.certificates": text}
    if in_file:
        (tmp_path / "trust.pem").write_text(text, encoding="utf-8")
        trusted = {"ssl.truststore.certificates": "", "ssl.truststore.location": str(tmp_path / "trust.pem")}
    tls = read_tls(BrokerConfig({**PROPERTIES, **trusted}), "SSL")
    for context in (tls.context, tls.to_brokers):
        assert [each["subject"] for each in context.get_ca_certs()] == [((("commonName", "localhost"),),)]


def test_a_file_for_openssl_is_nobody_elses_and_is_gone_at_once() -> None:
    with Pem("ssl.keystore.key", None, "secret").as_file() as path:
        assert Path(path).read_text() == "secret"
        assert Path(path).stat().st_mode & 0o077 == 0
    assert not Path(path).exists()
    assert "secret" not in repr(Pem("ssl.keystore.key", None, "secret"))
