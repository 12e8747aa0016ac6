"""`klog restore --bootstrap-server` looks at the cluster before it reads the backup, and before it writes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Never

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import klog.testing
from klog.backup.restoring import request
from klog.formats import compression
from klog.testing import BrokerProcess
from tests.backup.repositories import Backups
from tests.commands.running import Outcome, Run, runner
from tests.export.logs import Log, batch
from tests.peers.broker import ZooKeeperBroker
from tests.peers.old_servers import KAFKA_0_11, KAFKA_2_8, OldServer

DAY_MS = 86_400_000


@pytest.fixture
def klog_command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with klog.testing.broker({"log.retention.ms": -1}) as broker:
        yield broker


def topics(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics)


def create(bootstrap: str, topic: str, **config: str) -> None:
    named = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=named)])[topic].result(30)


def restore(klog_command: Run, backups: Backups, bootstrap: str, path: Path, *words: object) -> Outcome:
    mapping = path / "offsets.jsonl"
    done = klog_command("restore", backups.place, "-b", bootstrap, "--mapping", mapping, "--json", *words)
    assert not mapping.exists() or done.code == 0
    return done


@pytest.fixture
def no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes a plan fails."""

    def refuse(*_: object, **__: object) -> Never:
        raise AssertionError("the backup was read")

    monkeypatch.setattr(request, "plan_of", refuse)


@pytest.mark.usefixtures("no_plan")
@pytest.mark.parametrize("how", [[], ["--dry-run"], ["--skip-damaged"]])
def test_a_wrong_address_is_said_before_the_backup_is_read(
    klog_command: Run, backups: Backups, logs: Path, tmp_path: Path, how: list[str]
) -> None:
    Log(logs / "orders-0").append(batch(0, 3)).write()
    backups.run(logs)

    done = restore(klog_command, backups, "127.0.0.1:1", tmp_path, *how)

    assert done.code == 1
    assert "127.0.0.1:1" in done.err


@pytest.mark.usefixtures("no_plan")
def test_a_topic_that_has_records_is_said_before_the_backup_is_read(
    klog_command: Run, backups: Backups, logs: Path, tmp_path: Path, running: BrokerProcess
) -> None:
    Log(logs / "orders-0").append(batch(0, 3)).write()
    backups.run(logs)
    create(running.bootstrap_servers, "living")
    producer = Producer({"bootstrap.servers": running.bootstrap_servers})
    producer.produce("living", b"new")
    assert producer.flush(30) == 0

    done = restore(klog_command, backups, running.bootstrap_servers, tmp_path, "--rename", "orders=living")

    assert done.code == 2
    assert "topic living exists and has had records" in done.err


@pytest.mark.parametrize("how", [[], ["--dry-run"]])
def test_records_older_than_the_topic_takes_are_said_before_one_is_written(
    klog_command: Run, backups: Backups, logs: Path, tmp_path: Path, running: BrokerProcess, how: list[str]
) -> None:
    now_ms = int(time.time() * 1000)
    Log(logs / "aged-0").append(batch(0, 1, at=now_ms), batch(1, 1, at=now_ms - 10 * DAY_MS)).write()
    backups.run(logs)
    name = f"aged-{len(how)}"
    create(running.bootstrap_servers, name, message_timestamp_before_max_ms=str(DAY_MS))

    done = restore(
        klog_command, backups, running.bootstrap_servers, tmp_path, "--rename", f"aged={name}", *how
    )

    assert done.code == 2
    assert f"{name}-0: there are records 8640" in done.err
    assert f"older than now, the cluster takes {DAY_MS}" in done.err
    assert "message.timestamp.before.max.ms of the topic" in done.err


def test_records_newer_than_the_topic_takes_are_said_before_one_is_written(
    klog_command: Run, backups: Backups, logs: Path, tmp_path: Path, running: BrokerProcess
) -> None:
    Log(logs / "future-0").append(batch(0, 1, at=int(time.time() * 1000) + 10 * DAY_MS)).write()
    backups.run(logs)
    create(running.bootstrap_servers, "future", message_timestamp_after_max_ms=str(DAY_MS))

    done = restore(klog_command, backups, running.bootstrap_servers, tmp_path)

    assert done.code == 2
    assert f"newer than now, the cluster takes {DAY_MS}" in done.err


def test_a_topic_whose_brokers_set_the_time_takes_records_of_any_time(
    klog_command: Run, backups: Backups, logs: Path, tmp_path: Path, running: BrokerProcess
) -> None:
    Log(logs / "arrived-0").append(batch(0, 1, at=1)).write()
    backups.run(logs)
    limits = {"message_timestamp_before_max_ms": str(DAY_MS), "message_timestamp_type": "LogAppendTime"}
    create(running.bootstrap_servers, "arrived", **limits)

    done = restore(klog_command, backups, running.bootstrap_servers, tmp_path)

    assert done.code == 0, done.err


def test_a_batch_that_fits_no_segment_is_said_before_one_is_written(
    klog_command: Run, backups: Backups, logs: Path, tmp_path: Path, running: BrokerProcess
) -> None:
    Log(logs / "wide-0").append(batch(0, 1, size=5000)).write()
    backups.run(logs)
    create(running.bootstrap_servers, "wide", segment_bytes="4096")

    done = restore(klog_command, backups, running.bootstrap_servers, tmp_path)

    assert done.code == 2
    assert "topic wide: the largest batch in the backup has 50" in done.err
    assert "segment.bytes of the topic" in done.err


@pytest.mark.kafka
@pytest.mark.parametrize("how", [["--dry-run"], []])
def test_a_broker_before_2_1_is_given_no_zstd(
    klog_command: Run, backups: Backups, logs: Path, tmp_path: Path, how: list[str]
) -> None:
    Log(logs / "plain-0").append(batch(0, 3)).write()
    Log(logs / "packed-0").append(batch(0, 3, codec=compression.ZSTD)).write()
    backups.run(logs)
    with ZooKeeperBroker(tmp_path / "kafka", peer=OldServer(KAFKA_0_11)) as broker:
        no_factor = restore(klog_command, backups, broker.bootstrap, tmp_path, *how)
        how = [*how, "--replication-factor", "1"]
        done = restore(klog_command, backups, broker.bootstrap, tmp_path, *how)

        assert (no_factor.code, done.code) == (1, 2)
        assert "have no default" in no_factor.err
        assert "name the number with --replication-factor" in no_factor.err
        assert "topic packed has batches in zstd, which broker 0 does not take" in done.err
        assert "klog convert" in done.err
        assert not {"plain", "packed"} & topics(broker.bootstrap)
        alone = restore(klog_command, backups, broker.bootstrap, tmp_path, "--topic", "plain", *how)
        assert alone.code == 0, alone.err


@pytest.mark.kafka
def test_a_broker_with_an_older_protocol_or_format_is_given_nothing_that_it_refuses(
    klog_command: Run, backups: Backups, logs: Path, tmp_path: Path
) -> None:
    Log(logs / "packed-0").append(batch(0, 3, codec=compression.ZSTD)).write()
    Log(logs / "plain-0").append(batch(0, 3)).write()
    backups.run(logs)
    config = {"inter.broker.protocol.version": "2.0"}
    with ZooKeeperBroker(tmp_path / "kafka", config, peer=OldServer(KAFKA_2_8)) as broker:
        create(broker.bootstrap, "old", message_format_version="0.10.2")

        packed = restore(klog_command, backups, broker.bootstrap, tmp_path, "--topic", "packed")
        words = ("--topic", "plain", "--rename", "plain=old")
        old = restore(klog_command, backups, broker.bootstrap, tmp_path, *words)

        assert (packed.code, old.code) == (2, 2)
        assert "while their inter.broker.protocol.version is 2.0" in packed.err
        assert "packed" not in topics(broker.bootstrap)
        assert "topic old: message.format.version of the topic is 0.10.2" in old.err
        create(broker.bootstrap, "packed", compression_type="gzip")
        done = restore(klog_command, backups, broker.bootstrap, tmp_path, "--topic", "packed")
        assert done.code == 0, done.err
