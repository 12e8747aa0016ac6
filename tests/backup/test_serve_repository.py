"""`klog serve --read-only REPOSITORY`: only what is asked for is read, and damage concerns one partition."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from klog.backup.reading import open_backups
from klog.backup.restoring.request import RestoreRequest
from klog.backup.serving import blocks
from klog.backup.serving.blocks import Block, BlockCache, Place
from klog.commands.servers.read_only import opening_of
from klog.commands.shared.key_options import KeyOptions
from klog.commands.shared.moment_options import MomentOptions
from klog.formats.errors import CorruptRecordError, MissingInputError, UsageError
from klog.formats.names import TopicPartition
from klog.server.startup.broker import Broker
from klog.storage.log.earlier_records import UnreadableRecordsError
from tests.backup.repositories import Backups, log_files
from tests.backup.served import batches, served_repository
from tests.export.logs import batch, replica
from tests.server.read_only.serving import state_of


def two_logs(logs: Path) -> None:
    replica(logs / "orders-0", [batch(5 * each, 5, size=2000) for each in range(8)])
    replica(logs / "payments-0", [batch(5 * each, 5) for each in range(4)])


def first_piece(backups: Backups) -> Path:
    return min((Path(backups.place) / "data" / "orders-0").glob("*.log*"))


def read(broker: Broker, topic: str, offset: int) -> bytes:
    log = broker.logs.get(TopicPartition(topic, 0))
    assert log is not None
    found = log.read(offset, 1, log.log_end_offset, at_least_one=True)
    assert found.file is not None
    return os.pread(found.file.fileno(), found.size, found.position)


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_every_batch_is_read_from_the_pieces_and_nothing_is_written(
    backups: Backups, logs: Path, compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_BLOCK_BYTES", 3000)
    backups.compression = compression
    two_logs(logs)
    backups.run(logs)
    before = state_of(Path(backups.place))

    with served_repository(str(backups.place), RestoreRequest()) as broker:
        read(broker, "orders", 22)
        assert batches(broker, "orders", 0) == b"".join(log_files(logs / "orders-0").values())
        assert batches(broker, "payments", 0) == b"".join(log_files(logs / "payments-0").values())

    assert state_of(Path(backups.place)) == before


def test_only_the_topics_that_are_asked_for_are_served(backups: Backups, logs: Path) -> None:
    two_logs(logs)
    backups.run(logs)

    with served_repository(
        str(backups.place), RestoreRequest(wants=lambda topic: topic == "orders")
    ) as broker:
        assert [str(log.partition) for log in broker.logs.logs()] == ["orders-0"]


def test_a_missing_object_is_an_error_of_its_partition_only(
    backups: Backups, logs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    two_logs(logs)
    backups.run(logs)
    piece = first_piece(backups)

    with (
        served_repository(str(backups.place), RestoreRequest()) as broker,
        caplog.at_level(logging.WARNING),
    ):
        piece.rename(piece.with_suffix(".gone"))
        with pytest.raises(UnreadableRecordsError, match=piece.name):
            read(broker, "orders", 0)
        assert read(broker, "payments", 0)
        log = broker.logs.get(TopicPartition("orders", 0))
        assert log is not None
        assert not log.closed
        with pytest.raises(UnreadableRecordsError, match=piece.name):
            read(broker, "orders", 0)  # the failure is remembered, and not logged again

    assert [str(piece) in each.getMessage() for each in caplog.records] == [True]


def test_a_damaged_object_is_corrupt_and_named(
    backups: Backups, logs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    two_logs(logs)
    backups.run(logs)
    piece = first_piece(backups)
    data = bytearray(piece.read_bytes())
    data[500] ^= 1
    piece.write_bytes(data)

    with (
        served_repository(str(backups.place), RestoreRequest()) as broker,
        caplog.at_level(logging.WARNING),
    ):
        with pytest.raises(CorruptRecordError, match="checksum"):
            read(broker, "orders", 0)
        assert read(broker, "payments", 0)

    assert str(piece) in caplog.text


def test_the_cache_lets_go_of_what_was_not_used_for_the_longest_time() -> None:
    def block(size_bytes: int) -> Block:
        made = Block(Place(1, 0))
        made.position.append(size_bytes)
        return made

    cache = BlockCache(100)
    for key in "abc":
        cache.put(key, block(40))
        cache.get("a")

    assert (cache.get("b"), cache.size_bytes) == (None, 80)
    assert cache.get("a")
    assert cache.get("c")


def test_the_options_of_a_moment_are_for_a_repository_that_is_served_alone(
    backups: Backups, logs: Path
) -> None:
    two_logs(logs)
    backups.run(logs)
    place = str(backups.place)

    with pytest.raises(UsageError, match="backup repository"):
        opening_of([str(logs)], MomentOptions(at="2026-01-01T00:00:00Z"), KeyOptions(), None, ())
    with pytest.raises(UsageError, match="served alone"):
        opening_of([str(logs), place], MomentOptions(), KeyOptions(), None, ())
    with (
        pytest.raises(MissingInputError, match="no such topic"),
        opening_of([place], MomentOptions(topic=["other"]), KeyOptions(), None, ())(),
    ):
        pass
    assert open_backups(place).ids()
