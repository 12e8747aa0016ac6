"""Every directory that real Kafka wrote is served read-only: three clients read what Kafka says is in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klog.storage.log.directory_loading import METADATA_TOPIC
from tests.clients.python_clients import ConfluentKafka, KafkaPython, Read
from tests.corpora import LogDirectory, log_dirs, read_jsonl
from tests.export.expected import log_rows
from tests.export.reading import decoded
from tests.peers.kafka import KafkaPeer
from tests.peers.oracle import consume
from tests.peers.tool_server import ToolServer
from tests.server.read_only.serving import served, state_of

SOUND = [each for each in log_dirs() if not each.corpus.is_corrupt]
Partition = tuple[str, int]


def expected(log_dir: LogDirectory) -> dict[Partition, list[dict[str, Any]]]:
    """The records that a consumer gets, by partition. KRaft's metadata is no topic to clients."""
    found: dict[Partition, list[dict[str, Any]]] = defaultdict(list)
    for row in log_rows(log_dir):
        if row["topic"] == METADATA_TOPIC:
            continue
        found[row["topic"], row["partition"]].append(row)
    return found


def as_read(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["offset"], row["key"], row["value"]) for row in rows]


@pytest.mark.parametrize("log_dir", SOUND, ids=str)
def test_clients_read_every_record_and_nothing_changes(log_dir: LogDirectory) -> None:
    before = state_of(log_dir.path)
    records = expected(log_dir)
    assert records
    with served(log_dir.path) as bootstrap:
        for client in (ConfluentKafka(bootstrap), KafkaPython(bootstrap)):
            for (topic, partition), rows in records.items():
                read: list[Read] = client.read(topic, partition=partition, start=rows[0]["offset"])
                found = [(each.offset, each.key, each.value) for each in read]
                assert found == as_read(rows), (client.name, topic, partition)
    assert state_of(log_dir.path) == before


@pytest.fixture(scope="module")
def java(kafka3: KafkaPeer) -> Iterator[ToolServer]:
    with ToolServer(kafka3) as server:
        yield server


@pytest.mark.kafka
@pytest.mark.parametrize("log_dir", SOUND, ids=str)
def test_java_reads_every_record(java: ToolServer, tmp_path: Path, log_dir: LogDirectory) -> None:
    records = expected(log_dir)
    partitions = {f"{topic}-{partition}": rows for (topic, partition), rows in records.items()}
    with served(log_dir.path) as bootstrap:
        consume(java, bootstrap, list(partitions), tmp_path)
    for name, rows in partitions.items():
        *read, end = read_jsonl(tmp_path / f"{name}.consumer.read_uncommitted.jsonl")
        assert [(line["offset"], decoded(line["key"]), decoded(line["value"])) for line in read] == as_read(
            rows
        )
        assert end["position"] == end["endOffset"]
