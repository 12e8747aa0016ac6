"""Kafka opens a converted log as it is, without recovery, and serves the same records."""

from __future__ import annotations

import base64
import hashlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from klog.convert.options import ConvertOptions
from klog.formats.compression import GZIP, LZ4, SNAPPY, ZSTD
from klog.formats.names import FileKind, TopicPartition
from klog.storage.files.checkpoint_files import read_offsets, write_offsets
from tests import corpora
from tests.convert.logs import ALL, contents, converted, records_of, with_codec
from tests.convert.test_corpora import PARTITIONS
from tests.peers import DumpServer, KafkaPeer, ZooKeeperBroker
from tests.peers.broker import KRaftBroker
from tests.peers.load_server import LoadServer
from tests.peers.oracle import consume, describe_partitions
from tests.peers.tool_server import ToolServer

pytestmark = pytest.mark.kafka

CODECS = (None, ZSTD, LZ4, SNAPPY, GZIP, 0)
# What tells batches and segments apart: all else of a record must be the same.
OF_BATCHES = {"file", "magic", "codec", "batchBaseOffset", "batchPosition", "recordSize"}


@pytest.fixture(scope="module")
def loader(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadServer]:
    with LoadServer(kafka3, tmp_path_factory.mktemp("loader") / "loading.log") as server:
        yield server


@pytest.fixture(scope="module")
def dumper(kafka3: KafkaPeer) -> Iterator[DumpServer]:
    with DumpServer(kafka3) as server:
        yield server


@pytest.fixture(scope="module")
def tools3(kafka3: KafkaPeer) -> Iterator[ToolServer]:
    with ToolServer(kafka3) as server:
        yield server


@pytest.fixture(scope="module")
def tools4(kafka4: KafkaPeer) -> Iterator[ToolServer]:
    with ToolServer(kafka4) as server:
        yield server


def copied(partition: corpora.PartitionDirectory, work: Path) -> Path:
    directory = work / partition.name
    ignored = shutil.ignore_patterns("*.deleted", "*.cleaned", "*.swap")
    shutil.copytree(partition.path, directory, ignore=ignored)
    return directory


def options_for(number: int) -> ConvertOptions:
    """Over all partitions, every codec, with and without joining and new segment sizes."""
    return with_codec(
        CODECS[number % len(CODECS)],
        batch_bytes=(1 << 17, 700, 0)[number % 3],
        segment_bytes=(None, 4096)[number // 3 % 2],
    )


@pytest.mark.parametrize(("number", "partition"), list(enumerate(PARTITIONS)), ids=map(str, PARTITIONS))
def test_kafka_loads_and_dumps_it_without_complaint(
    number: int,
    partition: corpora.PartitionDirectory,
    loader: LoadServer,
    dumper: DumpServer,
    tmp_path: Path,
) -> None:
    directory = copied(partition, tmp_path)
    before = loader.load(directory, clean=True)
    assert before.refusal == ""
    converted(directory, options_for(number))
    after_conversion = contents(directory)
    logs = sorted(directory.glob("*.log"))
    for log in logs:
        dumped = dumper.dump([log], "--deep-iteration", "--print-data-log")
        assert (dumped.status, dumped.thrown) == (0, "")
        for kind in ("index", "timeindex"):
            path = log.with_suffix(f".{kind}")
            dumped = dumper.dump([path], "--index-sanity-check")
            assert dumped.thrown == ""
            assert b"Found" not in dumped.stdout + dumped.stderr
    assert loader.load(directory, clean=True) == before
    same = {name: data for name, data in contents(directory).items() if name in after_conversion}
    assert same == after_conversion
    # A recovery finds the same end, and nothing to cut.
    assert loader.load(directory).log_end_offset == before.log_end_offset
    assert {path.name: path.read_bytes() for path in logs} == {
        name: data for name, data in after_conversion.items() if name.endswith(".log")
    }


def expected_of(record: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """The record as it is expected after a conversion, with the batch in which it was found."""
    wanted = record | {name: found[name] for name in OF_BATCHES if name in found}
    if record.get("magic", 2) < 2 or record["leaderEpoch"] < 0:
        assert found["leaderEpoch"] >= 0
        wanted["leaderEpoch"] = found["leaderEpoch"]
    if record["timestampType"] == "NoTimestampType":
        wanted["timestampType"] = "CreateTime"
    for part in ("key", "value"):
        # The corpora keep only a digest of a long one, and so does the reader from another length on.
        if f"{part}_len" in record and part in found:
            data = base64.b64decode(found[part])
            assert len(data) == wanted.pop(f"{part}_len")
            assert hashlib.sha256(data).hexdigest() == wanted.pop(f"{part}_sha256")
            wanted[part] = found[part]
    return wanted


LOG_DIRECTORIES = sorted({one.log_dir for one in PARTITIONS if one.has_expected}, key=str)


@pytest.mark.parametrize("log_directory", LOG_DIRECTORIES, ids=str)
def test_kafkas_own_reader_finds_the_same_records(
    log_directory: corpora.LogDirectory, tools3: ToolServer, tools4: ToolServer, tmp_path: Path
) -> None:
    chosen = [one for one in PARTITIONS if one.log_dir == log_directory]
    directories = [copied(partition, tmp_path) for partition in chosen]
    for number, directory in enumerate(directories):
        converted(directory, options_for(number))
    output = tmp_path / "found"
    output.mkdir()
    describe_partitions(tools4 if log_directory.corpus.name.startswith("k4") else tools3, directories, output)
    for partition in chosen:
        found = corpora.read_jsonl(output / f"{partition.name}.records.jsonl")
        assert not [record for record in found if "iterationError" in record]
        records = [record for record in partition.expected_records() if record["file"].endswith(".log")]
        assert found == [expected_of(*pair) for pair in zip(records, found, strict=True)]


# On a busy machine the check after 10 s would abort the open transactions of a corpus before they are read.
NO_ABORTS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 3_600_000}
# Without k011-txn: Kafka 3.9 aborts its open transaction soon after the start, also if nothing was converted.
SERVED = ["k39-codecs", "k39-txn", "k39-compact", "up-08-010-11-28-39", "k39-edge"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVED)
def test_a_broker_starts_without_recovery_and_serves_what_it_served(
    name: str, tools3: ToolServer, tmp_path: Path
) -> None:
    original = corpora.Corpus(name).log_dir()
    logs, names = converted_copy(original, tmp_path)
    with ZooKeeperBroker.on_log_directory(logs, tmp_path / "kafka", NO_ABORTS) as broker:
        require_served(original, names, tools3, broker, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVED)
def test_kafka_4_starts_without_recovery_and_serves_what_kafka_3_served(
    name: str, kafka4: KafkaPeer, tools4: ToolServer, tmp_path: Path
) -> None:
    original = corpora.Corpus(name).log_dir()
    logs, names = converted_copy(original, tmp_path)
    # A KRaft broker serves the topics of its metadata only, so it creates them, and gets their files.
    with KRaftBroker(tmp_path / "kafka", peer=kafka4) as broker:
        create_topics(broker.bootstrap, names)
    put_in_place(logs, names, tmp_path / "kafka" / "logs")
    broker.log_path.unlink()
    with KRaftBroker(tmp_path / "kafka", peer=kafka4) as broker:
        require_served(original, names, tools4, broker, tmp_path)


def converted_copy(original: corpora.LogDirectory, work: Path) -> tuple[Path, list[str]]:
    """A copy of a log directory, converted, and its partitions of which a consumer's records are known."""
    logs = work / "converted"
    shutil.copytree(original.path, logs)
    names = []
    for partition in original.partitions():
        if not partition.files(".log"):
            continue
        before = records_of(logs / partition.name)
        converted(logs / partition.name, ALL)
        assert len(records_of(logs / partition.name)) == len(before)
        if partition.expected_consumer() is not None:
            names.append(partition.name)
    assert names
    ends = read_offsets(str(logs / FileKind.RECOVERY_POINT_CHECKPOINT))
    assert TopicPartition(*_split(names[0])) in ends
    return logs, names


def create_topics(bootstrap: str, names: Sequence[str]) -> None:
    """Create the topics of partitions, with every partition up to the highest of them."""
    from confluent_kafka.admin import AdminClient, NewTopic

    partitions: dict[str, int] = {}
    for topic, number in map(_split, names):
        partitions[topic] = max(partitions.get(topic, 0), number + 1)
    wanted = [NewTopic(topic, count, 1) for topic, count in partitions.items()]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(wanted).values():
        future.result(60)


def put_in_place(logs: Path, names: Sequence[str], target: Path) -> None:
    """Replace the files of the partitions of a stopped broker, but for the topic ids; and their offsets in
    checkpoints.
    """
    for name in names:
        directory = target / name
        identity = (directory / FileKind.PARTITION_METADATA).read_bytes()
        shutil.rmtree(directory)
        shutil.copytree(logs / name, directory)
        (directory / FileKind.PARTITION_METADATA).write_bytes(identity)
    for kind in (
        FileKind.RECOVERY_POINT_CHECKPOINT,
        FileKind.REPLICATION_CHECKPOINT,
        FileKind.LOG_START_CHECKPOINT,
    ):
        own, placed = (read_offsets(str(place / kind)) for place in (target, logs))
        chosen = {
            each: placed[each] for each in (TopicPartition(*_split(name)) for name in names) if each in placed
        }
        write_offsets(str(target / kind), {**own, **chosen})


def require_served(
    original: corpora.LogDirectory,
    names: Sequence[str],
    tools: ToolServer,
    broker: ZooKeeperBroker | KRaftBroker,
    work: Path,
) -> None:
    """The broker serves what the originals held, and has recovered nothing."""
    (work / "found").mkdir()
    for isolation in ("read_uncommitted", "read_committed"):
        consume(tools, broker.bootstrap, names, work / "found", isolation)
    compared = 0
    for partition_name in names:
        for isolation in ("read_uncommitted", "read_committed"):
            expected = original.partition(partition_name).expected_consumer(isolation)
            if expected is None:
                continue
            found = corpora.read_jsonl(work / "found" / f"{partition_name}.consumer.{isolation}.jsonl")
            assert found[-1] == expected[-1]  # the log's ends
            pairs = zip(expected[:-1], found[:-1], strict=True)
            assert found[:-1] == [expected_of(*pair) for pair in pairs]
            compared += len(found) - 1
    assert compared
    # A KRaft broker always recovers the metadata log.
    lines = broker.log_path.read_text("utf-8", "replace").splitlines()
    started = [line for line in lines if "__cluster_metadata" not in line]
    assert any("Loading logs from log dirs" in line for line in started)
    for complaint in ("Recovering unflushed segment", "Found invalid", "Could not find offset index"):
        assert [line for line in started if complaint in line] == []


def _split(name: str) -> tuple[str, int]:
    topic, _, number = name.rpartition("-")
    return topic, int(number)
