"""Our programs that use Kafka's own reader describe the fixtures as the fixtures' files do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import corpora
from tests.peers import KafkaPeer, ZooKeeperBroker
from tests.peers.oracle import consume, describe_partitions

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("corpus", corpora.corpora("k08-codecs", "k39-txn", "k4-"), ids=str)
def test_kafkas_own_reader_finds_what_the_fixture_expects(
    kafka3: KafkaPeer, tmp_path: Path, corpus: corpora.Corpus
) -> None:
    partitions = corpus.log_dir().partitions()
    describe_partitions(kafka3, [partition.path for partition in partitions], tmp_path)
    for partition in partitions:
        found = corpora.read_jsonl(tmp_path / f"{partition.name}.batches.jsonl")
        assert found == partition.expected_batches()
        found = corpora.read_jsonl(tmp_path / f"{partition.name}.records.jsonl")
        assert found == partition.expected_records()


@pytest.mark.slow
def test_a_broker_on_a_copied_log_directory_serves_what_the_original_served(
    kafka3: KafkaPeer, tmp_path: Path
) -> None:
    original = corpora.Corpus("k39-txn").log_dir()
    with ZooKeeperBroker.on_log_directory(original.path, tmp_path) as broker:
        names = ["t-txn-0", "t-lat-0"]
        consume(kafka3, broker.bootstrap, names, tmp_path, "read_committed")
    for name in names:
        found = corpora.read_jsonl(tmp_path / f"{name}.consumer.read_committed.jsonl")
        expected = original.partition(name).expected_consumer("read_committed")
        assert expected
        assert found == expected
