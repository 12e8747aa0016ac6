"""A broker that does not fit the live brokers of a cluster is refused before it joins."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest

import klog.testing
from klog.formats.errors import UsageError
from klog.metadata.cache import MetadataCache
from klog.metadata.values import BrokerRegistration, Endpoint
from klog.server.peers.broker_channel import Peers
from klog.server.startup.cluster_fit import protocol_reader, require_fit
from tests.waiting import eventually


def registration(broker_id: int, listeners: Mapping[str, str] | None = None) -> BrokerRegistration:
    named = listeners or {"INSIDE": "PLAINTEXT"}
    return BrokerRegistration(
        broker_id,
        tuple(Endpoint(name, protocol, f"host-{broker_id}", 9092) for name, protocol in named.items()),
    )


def check(
    other: BrokerRegistration | None, *, own_protocol: str = "3.9-IV0", protocol: str | None = "3.9-IV0"
) -> None:
    registered = {} if other is None else {other.broker_id: other}
    require_fit(registration(1), "INSIDE", own_protocol, registered, lambda _: protocol)


@pytest.mark.parametrize("protocol", ["3.4", "3.4-IV0", "3.9-IV0", None, "a version to come"])
def test_brokers_of_the_same_kind_fit(protocol: str | None) -> None:
    check(registration(2), protocol=protocol)


def test_an_old_protocol_of_this_broker_matters_only_beside_others() -> None:
    check(None, own_protocol="2.8")
    check(registration(1), own_protocol="2.8")  # its own registration of an earlier session
    with pytest.raises(UsageError, match=r"version is 2\.8, and in a cluster klog needs 3\.4 or later"):
        check(registration(2), own_protocol="2.8")


@pytest.mark.parametrize("protocol", ["3.3", "3.3-IV3", "2.8-IV1", "0.11.0"])
def test_an_old_protocol_of_another_broker_is_refused(protocol: str) -> None:
    with pytest.raises(UsageError, match=f"version of broker 2 is {protocol}, and klog needs 3.4"):
        check(registration(2), protocol=protocol)


def test_a_broker_without_the_listener_between_brokers_is_refused() -> None:
    with pytest.raises(UsageError, match=r"is INSIDE here, and broker 2 has no listener.*it has OUTSIDE"):
        check(registration(2, {"OUTSIDE": "PLAINTEXT"}))


def test_another_security_protocol_between_brokers_is_refused() -> None:
    with pytest.raises(UsageError, match="INSIDE, is PLAINTEXT here and SSL at broker 2"):
        check(registration(2, {"INSIDE": "SSL"}))


def test_the_protocol_is_read_over_the_wire() -> None:
    with klog.testing.broker({"broker.id": 7, "inter.broker.protocol.version": "3.6"}) as served:
        host, _, port = served.bootstrap_servers.rpartition(":")
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", host, int(port))
        read = protocol_reader(Peers(0, MetadataCache(), "PLAINTEXT"))
        eventually(lambda: read(BrokerRegistration(7, (endpoint,))) == "3.6")  # a slow answer counts as none
        assert read(BrokerRegistration(8, (endpoint,))) is None  # it refuses to tell about another


def test_a_broker_that_cannot_be_asked_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert protocol_reader(Peers(0, MetadataCache(), "OUTSIDE"))(registration(7)) is None
    assert "broker 7 does not tell its inter.broker.protocol.version" in caplog.text
