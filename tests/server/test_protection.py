"""The protocols of TLS, and stored configs that protect something and are not enforced."""

from __future__ import annotations

import re
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from klog.config.broker import BrokerConfig
from klog.config.broker_protection import UnenforcedConfigError
from klog.config.keys import ConfigError
from klog.metadata.configs import write_config
from klog.server.network.tls import _shake_hands, read_tls
from klog.server.startup.broker import Broker
from tests.server.network.servers import TLS_FILES
from tests.server.test_broker import config

TLS = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(TLS_FILES / "first.pem")}


@pytest.mark.parametrize("own", ["ssl.provider", "ssl.engine.factory.class"])
def test_a_stored_config_that_protects_and_is_not_enforced_keeps_the_broker_from_starting(
    tmp_path: Path, own: str
) -> None:
    name = f"listener.name.plaintext.{own}"
    broker = Broker(config(tmp_path / "a"))
    write_config(broker.store, "brokers/7", {name: "x.Y"})
    broker.stop()
    with pytest.raises(UnenforcedConfigError, match=re.escape(name)):
        Broker(config(tmp_path / "a"))
    Broker(config(tmp_path / "a", **{"klog.allow.unenforced.configs": own})).stop()


@pytest.mark.parametrize(
    ("enabled", "spoken"),
    [
        ("TLSv1.2", {"TLSv1.2"}),
        ("TLSv1.3", {"TLSv1.3"}),
        ("TLSv1,TLSv1.2,TLSv1.3", {"TLSv1.2", "TLSv1.3"}),
        ("", {"TLSv1.2", "TLSv1.3"}),
    ],
)
def test_only_the_enabled_protocols_are_spoken(tmp_path: Path, enabled: str, spoken: set[str]) -> None:
    texts = {**TLS, "ssl.enabled.protocols": enabled}
    tls = read_tls(BrokerConfig(texts), "SSL")
    found = set()
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        client.minimum_version = client.maximum_version = version
        with suppress(ssl.SSLError):
            _shake_hands(client, tls.context)
            found.add(version.name.replace("_", "."))
    assert found == spoken


@pytest.mark.parametrize("enabled", ["TLSv1.1", "TLSv1.3,SSLv9"])
def test_protocols_that_cannot_be_spoken_are_refused(enabled: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.enabled\.protocols"):
        read_tls(BrokerConfig({**TLS, "ssl.enabled.protocols": enabled}), "SSL")


@pytest.mark.parametrize(
    ("suites", "enabled", "what"),
    [
        ("TLS_RSA_WITH_RC4_128_SHA", "", "OpenSSL does not have or allow the suite TLS_RSA_WITH_RC4_128_SHA"),
        ("TLS_AES_256_GCM_SHA384,x", "", "the suite x"),
        ("TLS_AES_256_GCM_SHA384", "TLSv1.2", "no suite belongs to a version of TLS that is enabled"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "TLSv1.3", "no suite belongs to a version of TLS that is enabled"),
    ],
)
def test_suites_that_cannot_be_used_stop_the_start(suites: str, enabled: str, what: str) -> None:
    texts = {**TLS, "listener.name.ssl.ssl.cipher.suites": suites, "ssl.enabled.protocols": enabled}
    with pytest.raises(ConfigError, match=re.escape(what)) as refused:
        read_tls(BrokerConfig(texts), "SSL")
    assert refused.value.key == "ssl.cipher.suites"


def test_a_protocol_that_java_does_not_know_stops_the_start() -> None:
    assert read_tls(BrokerConfig({**TLS, "ssl.protocol": "TLSv1.2"}), "SSL")
    with pytest.raises(ConfigError, match=r"ssl\.protocol"):
        read_tls(BrokerConfig({**TLS, "ssl.protocol": "TLSv1.4"}), "SSL")
