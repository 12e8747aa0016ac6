"""Where a cluster is and how to talk to it, from Kafka's own properties."""

from __future__ import annotations

import pytest

from klog.admin.settings import HostPort, parse_bootstrap, settings_of
from klog.formats.errors import UsageError


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", [("a", 1)]),
        ("a", [("a", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("[::1]:5", [("::1", 5)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
    ],
)
def test_addresses_are_hosts_with_ports(text, addresses):
    assert list(parse_bootstrap(text)) == [HostPort(*address) for address in addresses]


@pytest.mark.parametrize("text", ["", ",", "a:b", "a:0", "a:65536", "::1:9092", "a b"])
def test_what_is_no_address_is_wrong_usage(text):
    with pytest.raises(UsageError):
        parse_bootstrap(text)


def test_an_ipv6_address_is_shown_in_brackets():
    assert str(HostPort("::1", 5)) == "[::1]:5"


def test_what_is_given_by_name_goes_before_the_properties():
    properties = {"bootstrap.servers": "file:1", "request.timeout.ms": "5", "client.id": "me"}
    settings = settings_of(properties)
    assert (settings.bootstrap, settings.timeout_ms, settings.client_id) == ((("file", 1),), 5, "me")
    settings = settings_of(properties, bootstrap="named:2", timeout_ms=7)
    assert (settings.bootstrap, settings.timeout_ms) == ((("named", 2),), 7)


def test_tls_checks_names_unless_told_not_to():
    context = settings_of({"security.protocol": "SSL"}).tls
    assert context is not None
    assert context.check_hostname
    relaxed = settings_of({"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": ""}).tls
    assert relaxed is not None
    assert not relaxed.check_hostname


def test_who_we_are_stands_in_the_jaas_config():
    login = (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="a \\"b\\"";'
    )
    sasl = settings_of(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login}
    ).sasl
    assert sasl is not None
    assert (sasl.mechanism, sasl.username, sasl.password) == ("PLAIN", "me", 'a "b"')
    assert "a \\" not in repr(sasl)


@pytest.mark.parametrize(
    "properties",
    [
        {"security.protocol": "TLS"},
        {"request.timeout.ms": "soon"},
        {"security.protocol": "SSL", "ssl.truststore.location": "trust.jks"},
        {"security.protocol": "SSL", "ssl.truststore.location": "missing.pem", "ssl.truststore.type": "PEM"},
        {"security.protocol": "SSL", "ssl.truststore.certificates": "no certificate"},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
    ],
)
def test_properties_that_do_not_work_are_wrong_usage(properties):
    with pytest.raises(UsageError):
        settings_of(properties)
