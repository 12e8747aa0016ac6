"""Clients that are throttled lose nothing, and come to their end later."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.admin import connect
from klog.admin.requests.client_quotas import QuotaEntity, alter_quotas
from klog.admin.settings import ClientSettings, parse_bootstrap
from klog.client.requests import ask
from klog.client.sasl import Sasl
from klog.protocol.apis import ApiKey
from tests.clients.brokers import Broker, klog_broker
from tests.clients.python_clients import CLIENTS, Client, Sent
from tests.comparison.messages import Ask, Ids, Part
from tests.comparison.pair import Connection
from tests.peers.broker import free_port
from tests.peers.kafka import KafkaPeer
from tests.peers.tool_server import ToolServer
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

LIMIT = 50_000  # bytes a second
RECORDS = [Sent(b"%03d" % number + bytes(997), b"key") for number in range(150)]
# In requests of some 16 KB, so that throttling begins while there are more to come.
SMALL_BATCHES: dict[str, dict[str, object]] = {
    "confluent-kafka": {"batch.size": 16_000},
    "kafka-python": {"batch_size": 16_000},
    "aiokafka": {"max_batch_size": 16_000},
}


@pytest.fixture(scope="module")
def limited() -> Iterator[Broker]:
    """A broker on which clients are limited after one second's bytes, not after ten."""
    with klog_broker({"quota.window.num": 2, "controller.quota.window.num": 1}) as process:
        process.create_topic("limited", 1)
        yield process
        assert "Traceback" not in process.log_text()


def limit(broker: Broker, client_id: str, **limits: float) -> None:
    ops = tuple(Part("OpData", {"key": key, "value": each, "remove": False}) for key, each in limits.items())
    entity = (Part("EntityData", {"entity_type": "client-id", "entity_name": client_id}),)
    entry = Part("EntryData", {"entity": entity, "ops": ops})
    ask = Ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": (entry,), "validate_only": False})
    connection = Connection(int(broker.bootstrap_servers.rpartition(":")[2]), "admin")
    connection.send(ask, Ids().body(ask))
    answer = None
    while answer is None:
        answer = connection.receive()
    assert answer.entries[0].error_code == 0
    connection.close()


def client_of(name: str, broker: Broker, client_id: str, **config: object) -> Client:
    named = {"client.id" if name == "confluent-kafka" else "client_id": client_id}
    return CLIENTS[name](broker.bootstrap_servers, **named, **config)


@pytest.mark.parametrize("name", CLIENTS)
def test_a_throttled_client_writes_and_reads_all_records(limited: Broker, name: str) -> None:
    topic = f"limited-{name}"
    limited.create_topic(topic, 1)
    limit(limited, f"writer-{name}", producer_byte_rate=LIMIT)
    limit(limited, f"reader-{name}", consumer_byte_rate=LIMIT)
    begin_s = time.monotonic()
    assert client_of(name, limited, f"writer-{name}", **SMALL_BATCHES[name]).write(topic, RECORDS) == list(
        range(len(RECORDS))
    )
    # No more than two seconds' bytes pass before the client has to wait.
    assert time.monotonic() - begin_s > 0.5
    begin_s = time.monotonic()
    found = client_of(name, limited, f"reader-{name}").read(topic)
    assert time.monotonic() - begin_s > 0.5
    assert [each.value for each in found] == [each.value for each in RECORDS]


@pytest.mark.kafka
def test_javas_performance_producer_is_throttled_and_gets_through(
    limited: Broker, kafka3: KafkaPeer, tools_of
) -> None:
    limit(limited, "perf-producer-client", producer_byte_rate=LIMIT)
    tools: ToolServer = tools_of(kafka3)
    ended = tools.run(
        *("org.apache.kafka.tools.ProducerPerformance", "--topic", "limited", "--num-records", 150),
        *("--record-size", 1000, "--throughput", -1, "--print-metrics", "--producer-props"),
        *(f"bootstrap.servers={limited.bootstrap_servers}", "client.id=perf-producer-client"),
    )
    assert ended.status == 0, ended.err
    assert "150 records sent" in ended.out
    (throttled,) = re.findall(r"producer-metrics:produce-throttle-time-max:\S+ *: (\S+)", ended.out)
    assert float(throttled) > 0


@pytest.mark.kafka
def test_javas_tools_say_that_topics_are_created_too_fast(
    limited: Broker, kafka3: KafkaPeer, tools_of
) -> None:
    limit(limited, "creating", controller_mutation_rate=0.01)
    properties = f"client.id=creating\nbootstrap.servers={limited.bootstrap_servers}\n"
    tools: ToolServer = tools_of(kafka3)
    config = limited.log_dirs[0].parent / "creating.properties"
    config.write_text(properties)

    def create(topic: str):
        return tools.run(
            *("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", limited.bootstrap_servers),
            *("--command-config", str(config), "--create", "--topic", topic, "--partitions", 3),
        )

    assert create("first").status == 0
    refused = create("second")
    assert refused.status != 0
    assert "throttling quota has been exceeded" in refused.out + refused.err


def test_the_quota_of_a_user_is_for_all_its_client_ids_whatever_other_users_do(tmp_path: Path) -> None:
    plain, secured = free_port(), free_port()
    users = 'user_alice="a" user_bob="b"'
    config: dict[str, str | int] = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{secured}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
    }

    def throttle_ms(login: Sasl | None, client_id: str) -> int:
        """For how long a client is throttled after one request."""
        address = parse_bootstrap(f"127.0.0.1:{plain if login is None else secured}")
        with connect.cluster(ClientSettings(address, sasl=login, client_id=client_id)) as cluster:
            answer = ask(cluster.any_connection(), ApiKey.LIST_GROUPS, states_filter=(), types_filter=())
            return int(answer.throttle_time.total_seconds() * 1000)

    alice, bob = Sasl("PLAIN", "alice", "a"), Sasl("PLAIN", "bob", "b")
    with KlogBroker(tmp_path, config) as broker:
        broker.port = plain
        broker.start()
        with connect.cluster(ClientSettings(parse_bootstrap(f"127.0.0.1:{plain}"))) as cluster:
            alter_quotas(cluster, QuotaEntity((("user", "alice"),)), {"request_percentage": 0.0})
        eventually(lambda: throttle_ms(alice, "one") == 1000)
        assert throttle_ms(alice, "two") == 1000
        assert throttle_ms(bob, "one") == throttle_ms(None, "one") == 0
        broker.stop()
