"""Several replicas, object stores, gzipped copies and groups, served read-only."""

from __future__ import annotations

import gzip
import shutil
import tempfile
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from klog.formats.errors import MissingInputError, StorageError
from klog.server.read_only import scratch
from klog.server.read_only.backup import find_backup
from klog.server.read_only.opening import opened_backup
from klog.storage.files.disk import Disk
from tests.clients.python_clients import ConfluentKafka
from tests.corpora import Corpus
from tests.export.object_store import ROOT, counted_store, put_directory
from tests.export.reading import decoded
from tests.server.read_only.serving import served, state_of
from tests.server.read_only.test_corpora import expected

TXN = Corpus("k39-txn").log_dir()
GROUPS = Corpus("k39-groups").log_dir()
EPOCHS = [Corpus("k39-epochs").log_dir(f"logs_{number}") for number in range(3)]
TIMEOUT_S = 60


def offsets_of(bootstrap: str, topic: str, partition: int = 0, **how: str) -> list[int]:
    return [each.offset for each in ConfluentKafka(bootstrap).read(topic, partition=partition, **how)]


def test_read_committed_consumers_see_what_kafka_showed_them() -> None:
    with served(TXN.path) as bootstrap:
        for topic in ("t-txn", "t-txn2", "t-lat"):
            lines = TXN.partition(f"{topic}-0").expected_consumer("read_committed")
            shown = [line["offset"] for line in lines if "offset" in line]
            assert offsets_of(bootstrap, topic, isolation="read_committed") == shown


def test_replicas_of_several_brokers_are_one_log() -> None:
    with served(*(each.path for each in EPOCHS)) as bootstrap:
        for (topic, partition), rows in expected(EPOCHS[0]).items():
            longest = max((expected(each).get((topic, partition), []) for each in EPOCHS), key=len)
            found = ConfluentKafka(bootstrap).read(topic, partition=partition, start=rows[0]["offset"])
            assert [(each.offset, each.value) for each in found] == [
                (row["offset"], row["value"]) for row in longest
            ]


def test_gzipped_copies_are_unpacked_beside_the_backup(tmp_path: Path) -> None:
    copy = tmp_path / "backup"
    shutil.copytree(TXN.path, copy)
    for path in copy.glob("t-txn-0/*.log"):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    before = state_of(copy)
    with served(copy) as bootstrap:
        rows = expected(TXN)["t-txn", 0]
        assert offsets_of(bootstrap, "t-txn") == [row["offset"] for row in rows]
    assert state_of(copy) == before


@pytest.mark.parametrize("gzipped", [False, True], ids=["plain", "gzipped"])
def test_an_object_store_is_served_from_copies(tmp_path: Path, gzipped: bool) -> None:
    copy = tmp_path / "backup"
    shutil.copytree(TXN.path, copy)
    if gzipped:
        for path in copy.glob("*/*.log"):
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    with counted_store() as store:
        put_directory(store, copy)
        with served(ROOT) as bootstrap:
            store.store.clear()  # nothing is read from it any more
            for (topic, partition), rows in expected(TXN).items():
                found = offsets_of(bootstrap, topic, partition)
                assert found == [row["offset"] for row in rows], (topic, partition)


def test_too_little_space_for_copies_is_said_before_any_is_made(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(Disk, "space_below", lambda *_: (1000, True))
    copied: list[object] = []
    monkeypatch.setattr(scratch, "_copy", lambda *each: copied.append(each))
    with counted_store() as store:
        put_directory(store, TXN.path)
        with (
            pytest.raises(StorageError, match="have to be copied here, 1000 are free") as raised,
            opened_backup([ROOT], None, ()),
        ):
            pass
    assert "copy the backup to a local disk" in str(raised.value)
    assert (copied, list(tmp_path.iterdir())) == ([], [])


def test_a_torn_end_is_not_served(tmp_path: Path) -> None:
    copy = tmp_path / "backup"
    shutil.copytree(TXN.path, copy)
    last = max(copy.glob("t-txn-0/*.log"))
    with last.open("ab") as file:
        file.write(b"\x00\x00\x00\x00\x00\x00\x03\xe8" + bytes(range(100)))
    before = state_of(copy)
    with served(copy) as bootstrap:
        assert offsets_of(bootstrap, "t-txn") == [row["offset"] for row in expected(TXN)["t-txn", 0]]
        config = {"bootstrap.servers": bootstrap, "group.id": "none"}
        consumer = Consumer({**config, "isolation.level": "read_uncommitted"})
        _, high = consumer.get_watermark_offsets(TopicPartition("t-txn", 0), TIMEOUT_S)
        consumer.close()
        assert high == find_backup([str(TXN.path)]).logs["t-txn", 0].log_end_offset
    assert state_of(copy) == before


def committed(bootstrap: str, group: str, topic: str, partition: int) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, partition)], TIMEOUT_S)
        return int(found.offset)
    finally:
        consumer.close()


def test_groups_go_on_where_they_were_and_commits_last_until_the_stop() -> None:
    before = state_of(GROUPS.path)
    with served(GROUPS.path) as bootstrap:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        groups = sorted(each.group_id for each in admin.list_consumer_groups().result(TIMEOUT_S).valid)
        assert groups
        name, partition, offset = first_committed(admin, groups)
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "enable.auto.commit": False})
        consumer.commit(offsets=[TopicPartition(*partition, offset + 1)], asynchronous=False)
        consumer.close()
        assert committed(bootstrap, name, *partition) == offset + 1
    assert state_of(GROUPS.path) == before
    with served(GROUPS.path) as bootstrap:
        assert committed(bootstrap, name, *partition) == offset


def first_committed(admin: AdminClient, groups: list[str]) -> tuple[str, tuple[str, int], int]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    for name in groups:
        asked = ConsumerGroupTopicPartitions(name)
        (future,) = admin.list_consumer_group_offsets([asked]).values()
        for each in future.result(TIMEOUT_S).topic_partitions:
            if each.offset >= 0:
                return name, (each.topic, each.partition), each.offset
    raise AssertionError(f"none of {groups} has committed an offset")


def test_every_write_is_refused_by_policy() -> None:
    before = state_of(TXN.path)
    with served(TXN.path) as bootstrap:
        for idempotent in (False, True):
            errors: list[KafkaError] = []
            producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": idempotent})
            producer.produce("t-txn", b"x", on_delivery=lambda error, _: errors.append(error))  # noqa: B023
            assert producer.flush(TIMEOUT_S) == 0
            assert [error.code() for error in errors] == [KafkaError.POLICY_VIOLATION]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        change = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
        topic = ConfigResource(ConfigResource.Type.TOPIC, "t-txn", incremental_configs=[change])
        asked = {
            "create": admin.create_topics([NewTopic("new", 1, 1)]),
            "delete": admin.delete_topics(["t-txn"]),
            "grow": admin.create_partitions([NewPartitions("t-txn", 3)]),
            "configs": admin.incremental_alter_configs([topic]),
            "records": admin.delete_records([TopicPartition("t-txn", 0, 1)]),
        }
        for what, futures in asked.items():
            for future in futures.values():
                with pytest.raises(KafkaException) as raised:
                    future.result(TIMEOUT_S)
                assert raised.value.args[0].code() == KafkaError.POLICY_VIOLATION, what
        transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
        with pytest.raises(KafkaException):
            transactional.init_transactions(5)
        assert "new" not in admin.list_topics(timeout=TIMEOUT_S).topics
    assert state_of(TXN.path) == before


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_what_holds_no_partition_is_one_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with (
        pytest.raises(MissingInputError, match="no partition is found"),
        opened_backup([str(tmp_path / name)], None, ()),
    ):
        pass


def test_the_records_have_their_own_values() -> None:
    rows = expected(GROUPS)
    (topic, partition), expected_rows = next(iter(sorted(rows.items())))
    line = next(
        line for line in GROUPS.partition(f"{topic}-{partition}").expected_records() if "offset" in line
    )
    assert expected_rows[0]["value"] == decoded(line["value"])
