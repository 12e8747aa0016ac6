"""One broker in this process, on the embedded store: topics come, go and are cleaned; stops are clean."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from klog.config.broker import BrokerConfig
from klog.formats.errors import StorageError, UsageError
from klog.formats.names import TopicPartition
from klog.kernel.batch_builder import RecordData, build_batch
from klog.metadata import paths
from klog.metadata.configs import change_config
from klog.metadata.embedded import FILE_NAME, EmbeddedStore
from klog.metadata.errors import ConnectionLossError
from klog.metadata.store import Node, SessionState
from klog.metadata.topics import (
    create_topic,
    new_topic_id,
    read_topics,
    request_deletion,
    topic_names,
)
from klog.metadata.values import BrokerRegistration, Endpoint
from klog.metadata.znodes import encode_broker, encode_config, encode_topic
from klog.protocol.apis import ApiKey
from klog.protocol.channel import Channel
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import build, request_class
from klog.server.startup.broker import Broker
from tests.control_requests import leader_and_isr, leader_and_isr_state
from tests.waiting import eventually


def config(directory: Path, **options: str) -> BrokerConfig:
    texts = {
        "broker.id": "7",
        "log.dirs": str(directory),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.cleaner.backoff.ms": "20",
    }
    return BrokerConfig(texts | {name.replace("_", "."): value for name, value in options.items()})


@contextmanager
def started(directory: Path, **options: str) -> Iterator[Broker]:
    """A broker that is stopped at the end of the block."""
    running = Broker(config(directory, **options))
    try:
        yield running
    finally:
        running.stop()


def make_topic(broker: Broker, name: str, partitions: int = 1, **configs: str) -> None:
    assignment = {number: [7] for number in range(partitions)}
    create_topic(broker.store, name, new_topic_id(os.urandom), assignment, configs, [7])
    eventually(lambda: sum(key[0] == name for key in broker.replicas.partitions) == partitions)


def write(broker: Broker, partition: TopicPartition, keys: list[bytes], value: bytes) -> None:
    batch = build_batch([RecordData(i, 1_700_000_000_000 + i, key, value) for i, key in enumerate(keys)])
    broker.replicas.partitions[partition].append(memoryview(batch), 1, 1_700_000_000_000)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = Broker(config(tmp_path / "a"))
    yield running
    running.stop()


def test_a_stop_is_clean_and_the_next_start_finds_everything(tmp_path: Path, broker: Broker) -> None:
    make_topic(broker, "t", 3)
    where = TopicPartition("t", 1)
    write(broker, where, [b"a", b"b"], b"v")
    cluster_id = broker.identity.cluster_id
    broker.stop()
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    again = Broker(config(tmp_path / "a"))
    try:
        assert again.identity == (7, cluster_id)
        eventually(lambda: len(again.replicas.partitions) == 3)
        partition = again.replicas.partitions[where]
        assert partition.state.is_leader
        assert partition.log.log_end_offset == 2
        eventually(lambda: partition.log.high_watermark == 2)
    finally:
        again.stop()


def test_a_new_partition_waits_for_a_store_that_is_away_and_is_led_then(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_many = broker.store.get_many

    def unreachable(wanted: Sequence[str]) -> list[Node | None]:
        if "/config/topics/t" in wanted:
            raise ConnectionLossError("no server could be reached")
        return get_many(wanted)

    monkeypatch.setattr(broker.store, "get_many", unreachable)
    monkeypatch.setattr(broker.store, "wait_connected", monkeypatch.undo)
    make_topic(broker, "t", **{"retention.ms": "1234"})
    partition = broker.replicas.partitions["t", 0]
    assert partition.state.is_leader
    assert partition.log.config.retention_ms == 1234


def test_clients_see_that_the_cluster_s_features_are_in_force(broker: Broker) -> None:
    with Channel("127.0.0.1", broker.network.port("PLAINTEXT")) as channel:
        asked = build(
            request_class(ApiKey.API_VERSIONS, 4), client_software_name="a", client_software_version="1"
        )
        eventually(lambda: channel.send(asked).finalized_features_epoch == 0)


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path, broker: Broker) -> None:
    # The lock is the process's, so another one asks for it.
    import subprocess
    import sys

    command = [sys.executable, "-m", "klog", "serve", "-q", "-o", f"log.dirs={tmp_path / 'a'}"]
    done = subprocess.run(
        [*command, "-o", "listeners=PLAINTEXT://127.0.0.1:0"], capture_output=True, check=False, text=True
    )
    assert done.returncode == 1
    assert re.search(r"process \d+ \(python\S*\) is using this log directory", done.stderr)


def test_a_directory_of_another_broker_is_refused(tmp_path: Path, broker: Broker) -> None:
    broker.stop()
    with pytest.raises(StorageError, match=r"belongs to broker 7, broker\.id is 8"):
        Broker(config(tmp_path / "a", broker_id="8"))


@pytest.mark.parametrize(("port", "refused"), [(9092, True), (9093, False)])
def test_an_address_that_another_broker_advertises_is_refused(
    tmp_path: Path, port: int, refused: bool
) -> None:
    (tmp_path / "a").mkdir()
    store = EmbeddedStore(tmp_path / "a" / FILE_NAME)
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "there", 9092)
    store.create(paths.broker(8), encode_broker(BrokerRegistration(8, (endpoint,))), make_parents=True)
    store.close()
    advertised = config(
        tmp_path / "a",
        advertised_listeners=f"PLAINTEXT://there:{port}",
        controlled_shutdown_enable="false",  # nobody answers
    )
    if refused:
        with pytest.raises(
            UsageError, match=r"there:9092 in advertised\.listeners is registered by broker 8"
        ):
            Broker(advertised)
    else:
        Broker(advertised).stop()


def test_a_deleted_topic_leaves_the_tree_and_the_disk(tmp_path: Path, broker: Broker) -> None:
    make_topic(broker, "gone", 2)
    request_deletion(broker.store, "gone")
    eventually(lambda: not any(key[0] == "gone" for key in broker.replicas.partitions))
    eventually(lambda: "gone" not in broker.cache.snapshot.topics)
    eventually(lambda: not (tmp_path / "a" / "gone-0").exists())
    assert len(list((tmp_path / "a").glob("gone-0.*-delete"))) == 1


def test_a_compacted_topic_is_cleaned_while_it_is_served(broker: Broker) -> None:
    # Small segments, cleaned as soon as anything is dirty.
    options = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01"}
    assignment = {0: [7]}
    create_topic(broker.store, "c", new_topic_id(os.urandom), assignment, options, [7])
    where = TopicPartition("c", 0)
    eventually(lambda: where in broker.replicas.partitions)
    for number in range(40):
        write(broker, where, [b"k%d" % (number % 3)], b"x" * 400)
    log = broker.replicas.partitions[where].log
    eventually(lambda: log.size_bytes < 8_000)
    assert log.log_end_offset == 40


def test_a_controller_that_was_idle_for_long_reaches_its_brokers_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "klog")
    broker = Broker(config(tmp_path / "a", connections_max_idle_ms="500"))
    make_topic(broker, "before")
    eventually(lambda: any("idle for" in record.getMessage() for record in caplog.records))
    make_topic(broker, "after")
    # The controller's last request for the topic; a stop would refuse it.
    eventually(lambda: "after" in broker.cache.snapshot.topics)
    broker.stop()
    assert [each.getMessage() for each in caplog.records if each.levelname == "WARNING"] == []


def test_a_log_of_another_topic_of_that_name_is_not_served_and_kept_unchanged_as_a_stray(
    tmp_path: Path, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    make_topic(broker, "again", 2)
    write(broker, TopicPartition("again", 0), [b"of the first"], b"v")
    broker.stop()
    store = EmbeddedStore(tmp_path / "a" / FILE_NAME)
    found = read_topics(store, ["again"])["again"]
    store.set(paths.topic("again"), encode_topic(replace(found, topic_id=new_topic_id(os.urandom))))
    store.close()
    shutil.rmtree(tmp_path / "a" / "again-1")
    before = (tmp_path / "a" / "again-0" / "partition.metadata").read_bytes()

    second = Broker(config(tmp_path / "a"))
    try:
        eventually(lambda: len(second.replicas.partitions) == 2)
        assert second.replicas.partitions[TopicPartition("again", 0)].log.log_end_offset == 0
        assert any("belongs to topic id" in record.getMessage() for record in caplog.records)
    finally:
        second.stop()
    (stray,) = (tmp_path / "a").glob("again-0.*-stray")
    assert (stray / "partition.metadata").read_bytes() == before


def test_a_topic_that_gets_its_id_later_has_it_on_disk_at_once(tmp_path: Path, broker: Broker) -> None:
    where, topic_id = TopicPartition("old", 0), new_topic_id(os.urandom)
    state = leader_and_isr_state(0, 7, (7,), is_new=True)
    for ids in ({}, {"old": topic_id}):
        # The same leader epoch: nothing but the id is new.
        answer = broker.replicas.leader_and_isr(
            leader_and_isr({where: state}, ids, controller_id=7, controller_epoch=9)
        )
        assert answer.partitions == {where: ErrorCode.NONE}
    assert topic_id in (tmp_path / "a" / "old-0" / "partition.metadata").read_text()


def test_an_invalid_config_in_the_tree_leaves_its_topic_as_it_is_and_later_ones_apply(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    make_topic(broker, "bad", **{"retention.ms": "5"})
    make_topic(broker, "good")
    change_config(broker.store, "topics/bad", {"retention.ms": "6", "segment.bytes": "-5"})
    change_config(broker.store, "topics/good", {"retention.ms": "7"})
    good = broker.replicas.partitions[TopicPartition("good", 0)]
    eventually(lambda: good.log.config.retention_ms == 7)
    assert broker.live.topic("bad").retention_ms == 5
    assert "The configs of topics/bad stay as they are" in caplog.text


@pytest.mark.parametrize("stored", [encode_config({"segment.bytes": "-5"}), b"[" * 3000, b"\xff"])
def test_a_topic_whose_stored_configs_are_invalid_keeps_all_its_records(
    tmp_path: Path, broker: Broker, caplog: pytest.LogCaptureFixture, stored: bytes
) -> None:
    make_topic(broker, "bad", **{"retention.ms": "-1"})
    make_topic(broker, "good")
    write(broker, TopicPartition("bad", 0), [b"k"], b"v")
    broker.store.set(paths.topic_config("bad"), stored)
    broker.stop()
    with started(tmp_path / "a", log_retention_ms="1", log_cleanup_policy="compact") as again:
        eventually(lambda: len(again.replicas.partitions) == 2)
        config = again.replicas.partitions["bad", 0].log.config
        assert (config.retention_ms, config.retention_bytes, config.compact) == (-1, -1, False)
        assert again.replicas.partitions["good", 0].log.config.retention_ms == 1
    (line,) = [text for text in caplog.messages if "topic bad keeps all its records" in text]
    assert "segment.bytes" in line or "/config/topics/bad" in line


def test_a_default_that_contradicts_a_topics_own_config_keeps_no_log_from_its_place(
    tmp_path: Path, broker: Broker
) -> None:
    make_topic(broker, "slow", **{"cleanup.policy": "compact", "min.compaction.lag.ms": "1000"})
    broker.stop()
    again = Broker(config(tmp_path / "a", log_cleaner_max_compaction_lag_ms="500"))
    try:
        eventually(lambda: TopicPartition("slow", 0) in again.replicas.partitions)
    finally:
        again.stop()


def test_a_change_is_applied_once_however_often_the_connection_to_the_tree_comes_back(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    make_topic(broker, "t")
    for _ in range(3):
        broker._session_changed(SessionState.CONNECTED)
    change_config(broker.store, "topics/t", {"segment.bytes": "-5"})
    eventually(lambda: "The configs of topics/t stay as they are" in caplog.text)
    change_config(broker.store, "topics/t", {"retention.ms": "7"})
    log = broker.replicas.partitions[TopicPartition("t", 0)].log
    eventually(lambda: log.config.retention_ms == 7)
    assert caplog.text.count("The configs of topics/t stay as they are") == 1


def test_replicas_of_a_directory_that_failed_before_the_start_are_offline_and_not_deleted(
    tmp_path: Path,
) -> None:
    directories = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    first = Broker(config(tmp_path / "a", log_dirs=directories))
    make_topic(first, "t", 2)
    first.stop()
    (lost,) = (TopicPartition("t", int(path.name[-1])) for path in (tmp_path / "b").glob("t-*"))
    (tmp_path / "b").rename(tmp_path / "away")
    (tmp_path / "b").write_text("no directory")

    second = Broker(config(tmp_path / "a", log_dirs=directories))
    eventually(lambda: len(second.replicas.partitions) == 1)
    eventually(lambda: second.replicas.missing(lost, lambda _: True) is ErrorCode.KAFKA_STORAGE_ERROR)
    request_deletion(second.store, "t")
    eventually(lambda: not second.replicas.partitions)
    eventually(lambda: "t" not in second.cache.snapshot.topics)
    assert topic_names(second.store) == ["t"]
    second.stop()

    (tmp_path / "b").unlink()
    (tmp_path / "away").rename(tmp_path / "b")
    third = Broker(config(tmp_path / "a", log_dirs=directories))
    eventually(lambda: topic_names(third.store) == [])
    assert not (tmp_path / "b" / str(lost)).exists()
    third.stop()


def test_a_failing_directory_reaches_the_controller_and_its_leaderless_partitions_reach_clients(
    tmp_path: Path,
) -> None:
    broker = Broker(config(tmp_path / "a", log_dirs=f"{tmp_path / 'a'},{tmp_path / 'b'}"))
    make_topic(broker, "t", 2)
    led = {
        number: path for path in ("a", "b") for number in (0, 1) if (tmp_path / path / f"t-{number}").exists()
    }
    (lost,) = (number for number, path in led.items() if path == "b")
    broker.logs.directory_failed(str(tmp_path / "b"), OSError(5, "Input/output error"))

    def leaders() -> dict[int, tuple[int, tuple[int, ...]]]:
        known = broker.cache.snapshot.topics.get("t", {})
        return {number: (state.leader, state.offline_replicas) for number, state in known.items()}

    eventually(lambda: leaders() == {lost: (-1, (7,)), 1 - lost: (7, ())})
    eventually(lambda: broker.store.children(paths.LOG_DIR_EVENTS) == [])
    broker.stop()
