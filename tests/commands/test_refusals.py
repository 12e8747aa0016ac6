"""What commands say to a user without any rights, on Kafka 3.9 and 4 with their authorizers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.testing.topics import create_topic
from tests.commands.running import Run, runner
from tests.peers import KRaftBroker, ZooKeeperBroker
from tests.peers.broker import free_port
from tests.peers.kafka import KAFKA_3, KAFKA_4

pytestmark = pytest.mark.kafka

_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_CLASSIC_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
_KRAFT_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_PLAN = '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1]}]}'
COMMANDS = [
    "configs describe --topic orders",
    "configs describe --broker 1",
    "configs alter --topic orders --set retention.ms=1",
    "topics describe orders",
    "topics create new",
    "topics add-partitions orders --partitions 9",
    "topics delete orders --yes",
    "groups describe g",
    "groups delete-offsets g --topic orders --yes",
    "groups delete g --yes",
    "groups reset-offsets g --topic orders --to-latest --execute",
    "offsets orders",
    "delete-records orders:0:1 --yes",
    "log-dirs",
    "elect-leader --preferred --all",
    "brokers configs 1",
    "acls list",
    "acls add --allow-principal User:x --topic orders",
    "acls remove --topic orders --yes",
    "users list x",  # Kafka 3.9 never answers who asks for all users without the right to
    "users set-password x --password-file password",
    "users delete x --yes",
    "quotas list",
    "quotas alter --user x --set producer_byte_rate=1",
    "transactions describe id",
    "transactions abort --topic orders --partition 0 --start-offset 0 --yes",
    "transactions describe-producers --topic orders --partition 0",
    "reassign execute plan.json --yes",
    "reassign verify plan.json",
    "reassign cancel plan.json --yes",
    "reassign list",
    "reassign plan --drain 1",
]


LISTS = ["topics list", "groups list", "transactions list"]


@pytest.fixture(scope="module", params=[KAFKA_3, KAFKA_4])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a listener of broker 1 where `alice` may log in, and may do nothing."""
    plain, port, quorum = free_port(), free_port(), free_port()
    version = request.param
    peer = request.getfixturevalue("kafka3" if version == KAFKA_3 else "kafka4")
    is_classic = version == KAFKA_3
    inner = "" if is_classic else f",CONTROLLER://127.0.0.1:{quorum}"
    config = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURED://127.0.0.1:{port}{inner}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secured.plain.sasl.jaas.config": f'{_LOGIN} user_alice="pencil";',
        "authorizer.class.name": _CLASSIC_AUTHORIZER if is_classic else _KRAFT_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }
    config |= {"broker.id": 1} if is_classic else {"controller.quorum.voters": f"1@127.0.0.1:{quorum}"}
    kind = ZooKeeperBroker if is_classic else KRaftBroker
    with kind(tmp_path_factory.mktemp("guarded"), config, peer=peer):
        create_topic(f"127.0.0.1:{plain}", "orders", 1, {})
        yield f"127.0.0.1:{port}"


@pytest.fixture
def alice(
    guarded: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Run:
    """The command line as `alice`, in a directory with a plan."""
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={_LOGIN} username="alice" password="pencil";\n'
    )
    config.chmod(0o600)
    (tmp_path / "plan.json").write_text(_PLAN)
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "password").chmod(0o600)
    monkeypatch.chdir(tmp_path)
    run = runner(capfd, monkeypatch)
    return lambda *words: run(*words, "-b", guarded, "--command-config", config, "--timeout-ms", 15_000)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_user_without_rights_gets_one_clear_message(alice: Run, command: str) -> None:
    done = alice(*command.split())
    assert (done.code, done.out) == (1, ""), done.err
    assert "Traceback" not in done.err
    assert "AUTHORIZATION_FAILED: this user lacks the right to the " in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("command", [*LISTS, "transactions find-hanging --broker-id 1"])
def test_lists_have_what_the_user_may_see(alice: Run, command: str) -> None:
    done = alice(*command.split(), "-o", "jsonl")
    assert (done.code, done.out) == (0, ""), done.err


def test_the_cluster_without_rights_shows_what_every_client_sees(alice: Run) -> None:
    done = alice("cluster", "describe", "-o", "json")
    assert done.code == 0, done.err
    (found,) = json.loads(done.out)
    assert [each["id"] for each in found["brokers"]] == [1]
