"""`kafka-configs --entity-type groups` of Kafka 4.1 on klog and on Kafka 4.1."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.brokers import klog_broker, klog_or_kafka4
from tests.peers import KafkaPeer
from tests.peers.tool_server import ToolServer
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

TOOL = "kafka.admin.ConfigCommand"
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
# Only one of them is not Kafka's default.
CONFIG = {"group.consumer.session.timeout.ms": 46_000}


class Configs:
    """The tool on one broker."""

    def __init__(self, tools: ToolServer, servers: str) -> None:
        self._tools = tools
        self._servers = servers

    def run(self, *words: str) -> str:
        done = self._tools.run(
            TOOL, "--bootstrap-server", self._servers, "--entity-type", "groups", "--entity-name", "g", *words
        )
        return done.out + done.err

    def described(self, *words: str) -> list[str]:
        """The lines about configs of consumer groups."""
        lines = self.run("--describe", *words).splitlines()
        return sorted(line.strip() for line in lines if line.strip().startswith("consumer."))


@pytest.fixture
def tool(kafka4: KafkaPeer, tools_of) -> ToolServer:
    return tools_of(kafka4)


@pytest.fixture(scope="module", params=["klog", "kafka4"])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with klog_or_kafka4(request, tmp_path_factory, CONFIG) as address:
        yield address


def test_kafka_configs_shows_and_changes_configs_of_groups(tool: ToolServer, servers: str) -> None:
    configs = Configs(tool, servers)
    assert configs.described("--all") == [
        f"{HEARTBEAT}=5000 sensitive=false synonyms={{DEFAULT_CONFIG:{HEARTBEAT}=5000}}",
        f"{SESSION}=46000 sensitive=false synonyms={{DEFAULT_CONFIG:{SESSION}=46000}}",
    ]
    assert configs.described() == []
    said = configs.run("--alter", "--add-config", f"{SESSION}=50000,{HEARTBEAT}=6000")
    assert said.strip() == "Completed updating config for group g."
    synonyms = f"{{DYNAMIC_GROUP_CONFIG:{SESSION}=50000}}"
    shown = [f"{SESSION}=50000 sensitive=false synonyms={synonyms}"]
    # A broker on KRaft learns of a change after the answer to it.
    eventually(lambda: len(configs.described()) == 2)
    configs.run("--alter", "--delete-config", HEARTBEAT)
    eventually(lambda: configs.described() == shown)
    for bad in (
        f"{SESSION}=1000",
        f"{SESSION}=60001",
        f"{HEARTBEAT}=50000",
        f"{SESSION}=soon",
        "retention.ms=1",
    ):
        assert "InvalidConfigurationException" in configs.run("--alter", "--add-config", bad)
    assert configs.described() == shown
    configs.run("--alter", "--delete-config", SESSION)
    eventually(lambda: configs.described() == [])


def test_configs_of_groups_outlive_a_restart_of_the_broker(tool: ToolServer) -> None:
    with klog_broker() as broker:
        Configs(tool, broker.bootstrap_servers).run("--alter", "--add-config", f"{SESSION}=50000")
        broker.stop()
        broker.start()
        (shown,) = Configs(tool, broker.bootstrap_servers).described()
        assert shown.startswith(f"{SESSION}=50000 ")
