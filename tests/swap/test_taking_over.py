"""klog starts on log directories of a stopped or killed Kafka 3.9 and serves the same records.

It does not start on a directory that belongs to another broker or cluster.
"""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

import pytest

from klog.metadata.embedded import FILE_NAME, EmbeddedStore
from tests import corpora
from tests.corpora import JsonObject, LogDirectory
from tests.peers.broker import Config, free_port, read_properties, znodes_for
from tests.peers.kafka import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer
from tests.swap.clients import Admin, Record, Writer, read
from tests.swap.klog_process import KlogBroker
from tests.swap.world import CONNECTION_MS
from tests.waiting import eventually

KEPT_AS_IT_IS: Config = {"log.retention.ms": -1, "log.cleaner.enable": "false"}
CLEAN = [
    corpora.Corpus(name).log_dir()
    for name in ("k39-codecs", "k39-compact", "k39-delrec", "k39-edge", "k39-times", "k39-txn")
]
ISOLATION = ("read_uncommitted", "read_committed")


def taken_over(original: LogDirectory, work: Path) -> KlogBroker:
    """A broker on a copy of the directory. Its metadata has the topics of the directory."""
    logs = work / "logs"
    shutil.copytree(original.path, logs)
    store = EmbeddedStore(logs / FILE_NAME)
    for path, text in znodes_for(logs).items():
        store.create(path, text.encode(), make_parents=True)
    store.close()
    return KlogBroker(work, KEPT_AS_IT_IS)


def as_expected(record: Record) -> JsonObject:
    """A record in the form of the corpora's expectations."""

    def text(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    return {
        "key": text(record.key),
        "value": text(record.value),
        "timestamp": record.timestamp[1],
        "headers": [[text(name.encode()), text(value)] for name, value in record.headers],
    }


def assert_served(klog: KlogBroker, original: LogDirectory) -> None:
    """Checks that this broker serves what Kafka served to its consumer, at both isolation levels."""
    wanted = {
        partition.name: partition
        for partition in original.partitions()
        if partition.has_expected and not partition.name.endswith("-delete")
    }
    places = [(name.rpartition("-")[0], int(name.rpartition("-")[2])) for name in wanted]
    eventually(lambda: set(places) <= Admin(klog.bootstrap).led())
    compared = 0
    for isolation in ISOLATION:
        found = read(klog.bootstrap, places, isolation)
        for (topic, number), records in found.items():
            lines = wanted[f"{topic}-{number}"].expected_consumer(isolation)
            if lines is None:
                continue
            expected = [line for line in lines if "offset" in line]
            assert list(records) == [each["offset"] for each in expected]
            for each in expected:
                served = as_expected(records[each["offset"]])
                # The expectations have only the size and the digest of large keys and values.
                known = {name: value for name, value in served.items() if name in each}
                assert known == {name: each[name] for name in known}
                compared += 1
    assert compared > 0


@pytest.mark.parametrize("original", CLEAN, ids=str)
def test_what_kafka_served_before_it_stopped_is_served(original: LogDirectory, tmp_path: Path) -> None:
    with taken_over(original, tmp_path) as klog:
        klog.start()
        assert_served(klog, original)
        klog.stop()


def test_what_a_killed_kafka_recovers_is_what_klog_recovers(tmp_path: Path) -> None:
    with taken_over(corpora.Corpus("k39-unclean").log_dir(), tmp_path) as klog:
        klog.start()
        assert "recovered" in klog.log_text
        assert_served(klog, corpora.Corpus("k39-unclean").log_dir("logs_recovered"))
        klog.stop()


def test_the_broker_id_in_meta_properties_stays_and_must_match(tmp_path: Path) -> None:
    with KlogBroker(tmp_path, {"broker.id": -1}) as klog:
        klog.start()
        klog.stop()
        first = read_properties(tmp_path / "logs" / "meta.properties")
        assert int(first["broker.id"]) > 1000
        klog.start()
        assert f"broker {first['broker.id']} of cluster {first['cluster.id']}" in klog.log_text
        klog.stop()
        assert read_properties(tmp_path / "logs" / "meta.properties") == first
        klog.spawn(broker_id=3)
        assert klog.ended() == 1
        assert f"the directory belongs to broker {first['broker.id']}, broker.id is 3" in klog.log_text


def test_the_directory_of_another_cluster_is_refused_and_not_changed(tmp_path: Path) -> None:
    with KlogBroker(tmp_path / "one") as one, KlogBroker(tmp_path / "two") as two:
        one.start().stop()
        two.start().stop()
        of_one = (tmp_path / "one" / "logs" / "meta.properties").read_bytes()
        two.spawn(log_dirs=f"{tmp_path / 'two' / 'logs'},{tmp_path / 'one' / 'logs'}")
        assert two.ended() == 1
        assert "the directory belongs to cluster" in two.log_text
        assert (tmp_path / "one" / "logs" / "meta.properties").read_bytes() == of_one
        assert (tmp_path / "one" / "logs" / ".kafka_cleanshutdown").exists()


def test_a_second_broker_on_the_same_directory_is_refused_and_the_first_serves_on(tmp_path: Path) -> None:
    with KlogBroker(tmp_path / "one") as one, KlogBroker(tmp_path / "two") as two:
        one.start()
        two.spawn(log_dirs=f"{tmp_path / 'two' / 'own'},{tmp_path / 'one' / 'logs'}")
        assert two.ended() == 1
        assert two.log_text.count(" is using this log directory") == 1
        assert "Traceback" not in two.log_text
        writer = Writer(one.bootstrap, acknowledged := {})
        writer.write("t", b"still here")
        writer.finish()
        assert read(one.bootstrap, acknowledged) == acknowledged
        one.stop()


@pytest.mark.kafka
def test_a_broker_id_is_refused_while_another_broker_uses_it(tmp_path: Path, kafka3: KafkaPeer) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper", kafka3) as zookeeper:
        config: Config = {
            "zookeeper.connect": zookeeper.hosts,
            "zookeeper.session.timeout.ms": 6000,
            "zookeeper.connection.timeout.ms": CONNECTION_MS,
        }
        with KlogBroker(tmp_path / "one", config) as one, KlogBroker(tmp_path / "two", config) as two:
            one.start()
            two.spawn()
            assert two.ended() == 1
            waiting = (
                f"broker id 0 is registered by another ZooKeeper session, {one.bootstrap}: waiting up to 9 s"
            )
            assert waiting in two.log_text
            assert "broker id 0 is in use by another live broker" in two.log_text
            assert "Traceback" not in two.log_text
            one.stop()
            two.start()
            two.stop()


def test_a_port_in_use_is_reported_and_the_directory_stays_clean(tmp_path: Path) -> None:
    with KlogBroker(tmp_path / "one") as one, KlogBroker(tmp_path / "two") as two:
        one.start()
        two.start(listeners=f"PLAINTEXT://127.0.0.1:{free_port()}").stop()
        two.spawn(listeners=one.config["listeners"])
        assert two.ended() == 1
        assert str(one.port) in two.complaints[-1] or str(one.port) in two.log_text
        assert "Traceback" not in two.log_text
        assert (tmp_path / "two" / "logs" / ".kafka_cleanshutdown").exists()
        one.stop()
