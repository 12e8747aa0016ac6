"""Generates the `k4-*` fixtures: log directories that Kafka 4.x wrote, and Kafka's description of them.

    python -m tests.peers.make_corpora [--output fixtures] [NAME...]

For each corpus a broker starts, java/MakeData.java fills it through Kafka's own clients, a consumer reads it,
and the broker stops cleanly. Then Kafka's own reader (java/LogOracle.java) and its dump tools (3.9.1 and 4.x)
describe the directory. Ids and timestamps of markers and groups differ from run to run, so a new run replaces
the whole corpus.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.peers import KAFKA_3, KAFKA_4, DumpServer, KafkaPeer, KRaftBroker
from tests.peers.broker import Config
from tests.peers.oracle import consume, describe_partitions, run_program
from tests.waiting import eventually

# Larger text files are stored gzipped, as in the other fixtures.
GZIP_ABOVE_BYTES = 58_000

FILL_TIMEOUT_S = 300

METADATA_PARTITION = "__cluster_metadata-0"

# Which decoder flag shows the records of an internal topic, and which versions of the tool have it.
DECODERS = {
    "__consumer_offsets": ("--offsets-decoder", (KAFKA_3, KAFKA_4)),
    "__transaction_state": ("--transaction-log-decoder", (KAFKA_3, KAFKA_4)),
    "__cluster_metadata": ("--cluster-metadata-decoder", (KAFKA_3, KAFKA_4)),
    "__remote_log_metadata": ("--remote-log-metadata-decoder", (KAFKA_3, KAFKA_4)),
    "__share_group_state": ("--share-group-state-decoder", (KAFKA_4,)),
}

BROKER: Config = {
    "log.index.size.max.bytes": 16_384,
    "log.index.interval.bytes": 1024,
    "log.cleaner.enable": "false",
    "transaction.max.timeout.ms": 900_000,
    "transaction.state.log.num.partitions": 2,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
}


@dataclass(frozen=True)
class Recipe:
    """How to generate one corpus: what MakeData does, configs besides `BROKER`, and when it is complete."""

    fill: str
    how_made: str
    config: Config = field(default_factory=dict)
    features: Sequence[str] = ()
    with_metadata: bool = False
    is_complete: Callable[[Path], bool] = lambda _logs: True


def cleaner_is_done(logs: Path) -> bool:
    """The cleaner has cleaned every `c-*` partition up to its active segment, and all swaps are complete."""
    checkpoint = logs / "cleaner-offset-checkpoint"
    if not checkpoint.is_file():
        return False
    cleaned = {line.split()[0] for line in checkpoint.read_text().splitlines()[2:]}
    wanted = {entry.name.rpartition("-")[0] for entry in logs.glob("c-*-0")}
    leftovers = [*logs.glob("c-*/*.deleted"), *logs.glob("c-*/*.cleaned"), *logs.glob("c-*/*.swap")]
    return wanted <= cleaned and not leftovers


def has_snapshots(logs: Path) -> bool:
    return len(list((logs / METADATA_PARTITION).glob("*.checkpoint"))) >= 3


RECIPES = {
    "k4-codecs": Recipe(
        "codecs",
        "130 records a codec by an idempotent producer, LogAppendTime, odd headers, nulls; clean stop",
    ),
    "k4-txn": Recipe(
        "txn",
        "transactions v2 (transaction.version=2): two interleaved transactional producers (commit, abort), "
        "sendOffsetsToTransaction, an empty transaction, one left OPEN (t-open); clean stop",
    ),
    "k4-compact": Recipe(
        "compact",
        "compacted topics, 600 records over 40 keys with tombstones, cleaned by the 4.x cleaner; clean stop",
        config={
            "log.cleaner.enable": "true",
            "log.cleaner.backoff.ms": 100,
            "log.flush.offset.checkpoint.interval.ms": 1000,
        },
        is_complete=cleaner_is_done,
    ),
    "k4-groups": Recipe(
        "groups",
        "classic groups (dynamic, static, deleted group, deleted offset), groups of the new protocol "
        "(KIP-848: dynamic, static, regular expression, non-ASCII name), a share group (KIP-932, "
        "share.version=1); clean stop",
        features=("share.version=1",),
    ),
    "k4-remote": Recipe(
        "remote",
        "records of the tiered-storage metadata topic, by Kafka's RemoteLogMetadataSerde; clean stop",
    ),
    "k4-kraft": Recipe(
        "kraft",
        "KRaft metadata log with snapshots: topics, partitions, a deleted topic, configs, quotas, "
        "SCRAM, ACLs; clean stop",
        config={
            "metadata.log.max.record.bytes.between.snapshots": 2500,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
        with_metadata=True,
        is_complete=has_snapshots,
    ),
}


def make(name: str, recipe: Recipe, output: Path, work: Path) -> None:
    """Generates the corpus in `work` and moves it to `output/name`, which it replaces."""
    corpus = work / name
    for directory in ("expected", "dump", "dump_4.1"):
        (corpus / directory).mkdir(parents=True)
    elsewhere = {} if recipe.with_metadata else {"metadata.log.dir": str(work / "metadata")}
    config = {**BROKER, **elsewhere, **recipe.config, "log.dirs": str(corpus / "logs")}
    with KRaftBroker(work / "broker", config, features=recipe.features) as broker:
        topics = fill(broker, recipe, corpus)
    for lock in corpus.glob("logs/.lock"):
        lock.unlink()
    partitions = sorted(entry for entry in (corpus / "logs").iterdir() if entry.is_dir())
    describe_partitions(KafkaPeer(KAFKA_4), partitions, corpus / "expected")
    for version, directory in ((KAFKA_3, "dump"), (KAFKA_4, "dump_4.1")):
        dump(version, partitions, corpus / directory)
    write_manifest(name, recipe, broker, topics, corpus, partitions)
    for path in [*corpus.glob("expected/*.jsonl"), *corpus.glob("dump*/*.txt")]:
        pack(path)
    shutil.rmtree(output / name, ignore_errors=True)
    shutil.move(corpus, output / name)


def fill(broker: KRaftBroker, recipe: Recipe, corpus: Path) -> dict[str, int]:
    """Fills the broker and reads every partition of its topics. Returns {topic: number of partitions}."""
    run_program(broker.peer, "MakeData", broker.bootstrap, recipe.fill)
    eventually(lambda: recipe.is_complete(corpus / "logs"), FILL_TIMEOUT_S, lambda: f"{corpus}: not complete")
    topics: dict[str, int] = {}
    partitions: list[str] = []
    for entry in sorted((corpus / "logs").iterdir()):
        topic, dash, number = entry.name.rpartition("-")
        if not (entry.is_dir() and dash and number.isdigit()) or topic.startswith("__"):
            continue
        topics[topic] = max(topics.get(topic, 0), int(number) + 1)
        partitions.append(entry.name)
    isolations = ("read_uncommitted", "read_committed") if recipe.fill == "txn" else ("read_uncommitted",)
    for isolation in isolations if partitions else ():
        consume(broker.peer, broker.bootstrap, partitions, corpus / "expected", isolation)
    return topics


def dump(version: str, partitions: Sequence[Path], target: Path) -> None:
    """Writes what the dump tool prints of all partitions: logs in several ways, indexes, snapshots."""
    with DumpServer(KafkaPeer(version), cwd=partitions[0].parent) as server:
        for partition in partitions:
            for kind, suffixes, flags in dumps_of(partition.name.rpartition("-")[0], version):
                files = sorted(
                    f"{partition.name}/{path.name}"
                    for path in partition.iterdir()
                    if path.name.endswith(suffixes)
                )
                if files:
                    (target / f"{partition.name}.{kind}.txt").write_bytes(server.dump(files, *flags).text)


def dumps_of(topic: str, version: str) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """The dumps of a topic's partitions: kind (part of the file name), suffixes of the files, flags."""
    deep = ("--print-data-log", "--deep-iteration")
    wanted: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = [
        ("log.deep", (".log",), deep),
        ("log.shallow", (".log",), ()),
        ("index", (".index", ".timeindex", ".txnindex", ".snapshot"), ()),
        ("checkpoint.deep", (".checkpoint",), deep),
    ]
    flag, versions = DECODERS.get(topic, ("", ()))
    if version in versions:
        wanted += [("log.decoded", (".log",), (flag,)), ("checkpoint.decoded", (".checkpoint",), (flag,))]
    return wanted


def write_manifest(
    name: str,
    recipe: Recipe,
    broker: KRaftBroker,
    topics: dict[str, int],
    corpus: Path,
    partitions: Sequence[Path],
) -> None:
    """Writes `manifest.json` with the fields that every corpus has, without the paths of this machine."""
    machine = {"log.dirs": "logs", "metadata.log.dir": "metadata"}
    manifest = {
        "name": name,
        "kafka_version": KAFKA_4,
        "how_made": recipe.how_made,
        "topics": {topic: {"partitions": count, "config": {}} for topic, count in topics.items()},
        "log_dirs": ["logs"],
        "oracle": f"expected/<tp>.{{batches,records}}.jsonl by FileRecords of kafka-clients {KAFKA_4}; "
        f"*.consumer.<isolation>.jsonl by its KafkaConsumer; dump/ = kafka.tools.DumpLogSegments {KAFKA_3} "
        f"text, dump_4.1/ = {KAFKA_4} text",
        "broker_props": {key: machine.get(key, value) for key, value in broker.config.items()},
        "partitions": {
            f"logs/{partition.name}": {
                "files": {path.name: path.stat().st_size for path in sorted(partition.iterdir())},
                "records": count_lines(corpus / "expected" / f"{partition.name}.records.jsonl"),
            }
            for partition in partitions
        },
    }
    (corpus / "manifest.json").write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")


def count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def pack(path: Path) -> None:
    """Replaces a large text file by its gzip, without a timestamp, so that equal input gives equal bytes."""
    if path.stat().st_size > GZIP_ABOVE_BYTES:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description="Generate the k4-* fixtures with Kafka 4.x.")
    parser.add_argument("--output", type=Path, default=Path("fixtures"))
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(RECIPES)}")
    chosen = parser.parse_args()
    for name in chosen.names or RECIPES:
        with tempfile.TemporaryDirectory(prefix="klog-corpus-") as work:
            make(name, RECIPES[name], chosen.output.resolve(), Path(work))
        sys.stderr.write(f"made {chosen.output / name}\n")


if __name__ == "__main__":
    main()
