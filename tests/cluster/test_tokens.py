"""Brokers log in at each other by tokens that they get from a provider, klog's and Kafka's alike."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.test_sasl import TIMEOUT_S, address_of, all_in_sync, write_and_read
from tests.peers.broker import SINGLE_BROKER, ZooKeeperBroker, free_port
from tests.peers.kafka import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer
from tests.server.network.token_provider import LIFETIME_S, SECRET, TokenProvider
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_LISTENER = "listener.name.secured.oauthbearer.sasl"


def config_of(work: Path, broker_id: int, provider: TokenProvider) -> dict[str, str | int]:
    """A broker with one listener, which wants tokens of everybody, brokers included."""
    return {
        **SINGLE_BROKER,
        "broker.id": broker_id,
        "log.dirs": str(work / f"logs-{broker_id}"),
        "listeners": f"SECURED://localhost:{free_port()}",
        "listener.security.protocol.map": "SECURED:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SECURED",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        f"{_LISTENER}.server.callback.handler.class": f"{_OAUTH}.secured.OAuthBearerValidatorCallbackHandler",
        f"{_LISTENER}.login.callback.handler.class": f"{_OAUTH}.secured.OAuthBearerLoginCallbackHandler",
        f"{_LISTENER}.jaas.config": (
            f'{_OAUTH}.OAuthBearerLoginModule required clientId="broker" clientSecret="{SECRET}";'
        ),
        "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/keys",
        "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:broker;User:admin",
        "auto.create.topics.enable": "false",
    }


def of_librdkafka(address: str, provider: TokenProvider) -> dict[str, Any]:
    def token(_: str) -> tuple[str, float]:
        return provider.token("admin"), time.time() + LIFETIME_S

    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": token,
    }


def admin_of(settings: dict[str, Any]) -> AdminClient:
    admin = AdminClient(settings)
    admin.poll(0)  # calls `oauth_cb`
    return admin


@pytest.fixture
def provider() -> Iterator[TokenProvider]:
    with TokenProvider() as started:
        yield started


def test_a_broker_that_wants_tokens_of_everybody_has_its_own(provider: TokenProvider, tmp_path: Path) -> None:
    provider.lifetime_s = 3
    config = config_of(tmp_path, 0, provider)
    with KlogBroker(tmp_path / "klog", config) as broker:
        broker.start()
        settings = of_librdkafka(address_of(config), provider)
        admin = admin_of(settings)
        admin.create_topics([NewTopic("t", 1)])["t"].result(TIMEOUT_S)
        # The session of the controller's connection to this broker ends with its token.
        time.sleep(1.5 * provider.lifetime_s)
        admin.create_topics([NewTopic("u", 1)])["u"].result(TIMEOUT_S)
        write_and_read(settings, "u", b"v")
        broker.stop()
        assert broker.complaints == []
        assert "session has expired" not in broker.log_text
        assert SECRET not in broker.log_text


@pytest.mark.kafka
@pytest.mark.slow
def test_klog_and_kafka_replicate_from_each_other_by_tokens(
    kafka3: KafkaPeer, provider: TokenProvider, tmp_path: Path
) -> None:
    with ExitStack() as running:
        zookeeper = running.enter_context(ZooKeeperServer(tmp_path / "zookeeper", kafka3))
        klog, kafka = (config_of(tmp_path, broker_id, provider) for broker_id in (7, 8))
        for config in (klog, kafka):
            config["zookeeper.connect"] = zookeeper.hosts
        running.enter_context(KlogBroker(tmp_path / "klog", klog)).start()
        running.enter_context(ZooKeeperBroker(tmp_path / "kafka", kafka, kafka3))
        settings = of_librdkafka(address_of(klog), provider)
        admin = admin_of(settings)
        eventually(lambda: len(admin.list_topics(timeout=TIMEOUT_S).brokers) == 2, TIMEOUT_S)
        topic = NewTopic("t", 2, replica_assignment=[[7, 8], [8, 7]])
        admin.create_topics([topic])["t"].result(TIMEOUT_S)
        for partition in (0, 1):
            write_and_read(settings, "t", b"v", partition)
        eventually(lambda: all_in_sync(admin), TIMEOUT_S)
