"""`klog quotas` and `kafka-configs` change and show the quotas of klog's own broker."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.commands.clusters import STARTERS
from tests.commands.running import Run, runner
from tests.peers.kafka import KafkaPeer
from tests.peers.tool_server import ToolServer


@pytest.fixture(scope="module")
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with STARTERS["klog"](request, tmp_path_factory.mktemp("quotas")) as address:
        yield address


@pytest.fixture
def klog(
    bootstrap: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    monkeypatch.setenv("KLOG_BOOTSTRAP_SERVER", bootstrap)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    return runner(capfd, monkeypatch)


def listed(klog: Run, *words: str) -> list[tuple]:
    done = klog("quotas", "list", *words, "-o", "json")
    assert done.code == 0, done.err
    return [
        (each["user"], each["clientId"], each["ip"], each["key"], each["value"])
        for each in json.loads(done.out)
    ]


def test_quotas_are_set_listed_and_removed(klog: Run) -> None:
    for words in (
        ("--user", "alice", "--set", "producer_byte_rate=1024", "--set", "request_percentage=12.5"),
        ("--user", "alice", "--client-id-defaults", "--set", "consumer_byte_rate=7"),
        ("--ip", "127.0.0.9", "--set", "connection_creation_rate=100"),
    ):
        assert klog("quotas", "alter", *words).code == 0
    assert listed(klog, "--user", "alice") == [
        ("alice", None, None, "producer_byte_rate", 1024),
        ("alice", None, None, "request_percentage", 12.5),
        ("alice", "<default>", None, "consumer_byte_rate", 7),
    ]
    assert listed(klog, "--ip", "127.0.0.9") == [(None, None, "127.0.0.9", "connection_creation_rate", 100)]
    assert klog("quotas", "alter", "--user", "alice", "--delete", "producer_byte_rate").code == 0
    assert len(listed(klog, "--user", "alice")) == 2
    wrong = klog("quotas", "alter", "--user", "alice", "--set", "no_such_rate=1")
    assert wrong.code == 1
    assert "no_such_rate" in wrong.err


@pytest.mark.kafka
def test_kafka_configs_works_with_klogs_broker(bootstrap: str, kafka3: KafkaPeer) -> None:
    with ToolServer(kafka3) as tools:

        def configs(*words: str) -> str:
            done = tools.run("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, *words)
            assert done.status == 0, done.err
            return done.out

        entity = ("--entity-type", "users", "--entity-name", "bob", "--entity-type", "clients")
        both = (*entity, "--entity-name", "c/1")
        configs("--alter", "--add-config", "producer_byte_rate=5000", *both)
        shown = configs("--describe", *both)
        assert shown == (
            "Quota configs for user-principal 'bob', client-id 'c/1' are producer_byte_rate=5000.0\n"
        )
        configs("--alter", "--delete-config", "producer_byte_rate", *both)
        assert configs("--describe", *both) == ""
