"""Kafka runs here, and it is the version that wrote the fixtures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import corpora
from tests.conftest import give_up
from tests.peers import DumpServer, KafkaPeer, KRaftBroker, ZooKeeperBroker
from tests.peers.broker import BrokerFailedError
from tests.peers.maven import PeerUnavailableError
from tests.peers.old_servers import KAFKA_0_11, KAFKA_2_8, OldServer

pytestmark = pytest.mark.kafka

GROUPS = corpora.Corpus("k39-groups").log_dir()
OFFSETS_LOG = "__consumer_offsets-0/00000000000000000000.log"


@pytest.fixture(scope="module")
def groups_dump(kafka3: KafkaPeer) -> Iterator[DumpServer]:
    with DumpServer(kafka3, cwd=GROUPS.path) as server:
        yield server


def test_a_dump_in_utf8_equals_the_fixture_that_the_same_version_made(groups_dump: DumpServer) -> None:
    expected = GROUPS.partition("__consumer_offsets-0").dump("log.decoded")
    result = groups_dump.dump([OFFSETS_LOG], "--offsets-decoder")
    assert result.text == expected
    assert "группа".encode() in result.text


def test_the_dump_server_and_a_jvm_of_its_own_print_the_same(
    kafka3: KafkaPeer, groups_dump: DumpServer
) -> None:
    flags = ("--print-data-log", "--deep-iteration")
    result = groups_dump.dump([OFFSETS_LOG], *flags)
    assert result.status == 0
    assert kafka3.dump_log([OFFSETS_LOG], *flags, cwd=GROUPS.path) == result.stdout


def test_the_dump_server_outlives_wrong_usage_and_exceptions(groups_dump: DumpServer) -> None:
    usage = groups_dump.run(["--no-such-option"])
    assert usage.status == 1
    assert usage.thrown or usage.stderr
    missing = groups_dump.dump(["no-such-directory-0/00000000000000000000.log"])
    assert missing.status == 1
    assert "no-such-directory-0" in missing.thrown
    assert groups_dump.dump([OFFSETS_LOG]).status == 0


@pytest.mark.slow
def test_a_3x_broker_starts_and_leaves_a_clean_shutdown(kafka3: KafkaPeer, tmp_path: Path) -> None:
    with ZooKeeperBroker(tmp_path) as broker:
        assert broker.log_path.exists()
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").is_file()


@pytest.mark.slow
def test_a_broker_that_refuses_to_start_says_why(kafka3: KafkaPeer, tmp_path: Path) -> None:
    with pytest.raises(BrokerFailedError, match=r"log\.segment\.bytes"):
        ZooKeeperBroker(tmp_path, {"log.segment.bytes": 1})


@pytest.mark.slow
def test_a_4x_broker_starts_and_leaves_a_clean_shutdown(kafka4: KafkaPeer, tmp_path: Path) -> None:
    with KRaftBroker(tmp_path) as broker:
        assert broker.bootstrap.startswith("127.0.0.1:")
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").is_file()
    assert (tmp_path / "logs" / "__cluster_metadata-0").is_dir()


@pytest.mark.parametrize("version", [KAFKA_0_11, KAFKA_2_8])
def test_tools_of_old_servers_run_with_quick_flags(version: str) -> None:
    try:
        server = OldServer(version)
        assert server.classpath
    except PeerUnavailableError as missing:
        give_up("real Kafka", missing)
    done = server.java("kafka.admin.ConfigCommand", "--help")
    assert b"--entity-type" in done.stdout + done.stderr
