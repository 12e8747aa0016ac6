"""The commands of the page on Kafka 4 print what it shows, and bring real Kafka there and back as written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.cluster_metadata.play import CLASSIC, COMPACTED, DELETED, MOVED, QUIET, Play
from tests.corpora import REPOSITORY
from tests.docs.console import console_examples, run_console
from tests.peers import KafkaPeer, KRaftBroker, ZooKeeperBroker
from tests.peers.broker import Config, free_port
from tests.peers.zookeeper import ZooKeeperServer
from tests.waiting import eventually

PAGE = (REPOSITORY / "docs/kafka4.md").read_text(encoding="utf-8")
DISKS = "Only the disks are left"


def section(heading: str) -> str:
    """The text below a heading."""
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def blocks(heading: str) -> list[list[str]]:
    """The commands of each shell block below a heading."""
    return [block.splitlines() for block in re.findall(r"```sh\n(.*?)```", section(heading), re.DOTALL)]


def run(commands: Iterable[str], places: Mapping[str, object]) -> None:
    """Runs commands of the page at other places."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    for command in commands:
        words = command
        for written, place in places.items():
            words = words.replace(written, str(place))
        done = subprocess.run(
            ["/bin/bash", "-c", words],
            env={**os.environ, "PATH": path},
            capture_output=True,
            check=False,
            text=True,
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"


class Kafka4AsWritten(KRaftBroker):
    """Kafka 4.1 with the properties file that a command of the page wrote."""

    def _write_config(self, config: Config) -> Path:
        return self.work / "kraft.properties"


class Kafka3AsWritten(ZooKeeperBroker):
    """Kafka 3.9 with the properties file of the way back."""

    def _write_config(self, config: Config) -> Path:
        return self.work / "back.properties"


def test_the_commands_print_what_the_page_shows() -> None:
    examples = console_examples(PAGE)
    assert len(examples) == 6
    for command, shown in examples:
        assert run_console(command, REPOSITORY).rstrip() == shown.rstrip(), command


def seen(play: Play) -> tuple[list, list[int]]:
    return play.records((DELETED, COMPACTED, MOVED)), play.committed(CLASSIC)


@pytest.mark.kafka
@pytest.mark.slow
def test_a_cluster_goes_to_kafka_4_and_back_as_the_page_says(
    kafka3: KafkaPeer, kafka4: KafkaPeer, tmp_path: Path
) -> None:
    (before, after) = blocks("My ZooKeeper cluster goes to Kafka 4 tonight")
    (to_klog, to_zookeeper) = blocks("Back to klog, or to Kafka 3.9 with ZooKeeper")
    with ZooKeeperServer(tmp_path / "zookeeper-server", kafka3) as zookeeper:
        places = {
            "/etc/kafka": tmp_path,
            "/var/lib/kafka": tmp_path / "logs",
            "zk1:2181/kafka": f"{zookeeper.hosts}/back",
            "zk1:2181": zookeeper.hosts,
            "localhost:9093": f"127.0.0.1:{free_port()}",
        }
        with ZooKeeperBroker(tmp_path, {"zookeeper.connect": zookeeper.hosts}, kafka3) as broker:
            address = broker.bootstrap
            play = Play(address, address, has_consumer_groups=False, peer=kafka3)
            play.make_topics()
            play.make_records()
            expected = seen(play)
            run(before, places)
        run(after, places)
        with Kafka4AsWritten(tmp_path, peer=kafka4):
            play.await_leaders()
            assert seen(play) == expected
        shutil.copytree(tmp_path / "logs", tmp_path / "of-klog")
        run(to_klog, {**places, "/var/lib/kafka": tmp_path / "of-klog"})
        run(to_zookeeper, places)
        config: Config = {
            "zookeeper.connect": f"{zookeeper.hosts}/back",
            "listeners": f"PLAINTEXT://{address}",
        }
        with Kafka3AsWritten(tmp_path, config, kafka3):
            play.await_leaders()
            assert seen(play) == expected


@pytest.mark.kafka
def test_kafka_4_starts_on_log_directories_whose_metadata_is_lost(kafka4: KafkaPeer, tmp_path: Path) -> None:
    logs, properties = tmp_path / "logs", tmp_path / "kraft.properties"
    port, controller = free_port(), free_port()
    for command, _ in console_examples(section(DISKS)):
        words = command.replace("/tmp/klog-disks", str(logs)).replace(
            "/tmp/klog-node.properties", str(properties)
        )
        run_console(words.replace("localhost:9093", f"127.0.0.1:{controller}"), REPOSITORY)
    with properties.open("a") as file:
        file.write(
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
            "controller.listener.names=CONTROLLER\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        )
    with Kafka4AsWritten(tmp_path, peer=kafka4) as broker:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", **QUIET})
        topics = {"t-lat", "t-txn", "t-txn2"}

        def have_leaders() -> bool:
            found = admin.list_topics(timeout=10).topics
            return all(name in found and found[name].partitions[0].leader == 0 for name in topics)

        eventually(have_leaders)
        assert "Recovering" not in broker.log_path.read_text()
