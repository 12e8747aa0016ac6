"""What a shell completes: subcommands, options, choices, and names of formats, topics and configs."""

from __future__ import annotations

import os
import subprocess
import sys

import confluent_kafka
import pytest

from tests.commands.running import Run
from tests.waiting import eventually

RUN = "from klog.commands.main import main; main()"


def completions(words: str, **environment: str) -> list[str]:
    """What bash gets for a line; its last word is completed."""
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        env={
            **os.environ,
            "_KLOG_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
            **environment,
        },
        capture_output=True,
        check=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("klog dump-", ["dump-segment"]),
        ("klog topics del", ["delete"]),
        ("klog dump-segment --form", ["--format"]),
        ("klog dump-segment --format p", ["parquet"]),
        ("klog export --bad-records r", ["reject"]),
        ("klog formats offset", ["offset-index"]),
        ("klog configs alter --topic t --set retention.m", ["retention.ms="]),
        ("klog configs alter --topic t --delete retention.m", ["retention.ms"]),
        ("klog configs alter --topic t --delete-config a,retention.m", ["a,retention.ms"]),
        ("klog configs alter --broker 0 --set log.cleaner.th", ["log.cleaner.threads="]),
        ("klog topics create t --config cleanup.p", ["cleanup.policy="]),
        ("klog clean --config segment.j", ["segment.jitter.ms="]),
        ("klog serve -o zookeeper.conn", ["zookeeper.connect=", "zookeeper.connection.timeout.ms="]),
    ],
)
def test_names_that_klog_knows_are_completed(words: str, expected: list[str]) -> None:
    assert completions(words) == expected


@pytest.mark.parametrize(
    "words",
    [
        "klog consume {}",
        "klog produce {}",
        "klog topics describe {}",
        "klog topics delete --topic {}",
        "klog configs describe --topic {}",
        "klog configs alter --entity-type topics --entity-name {}",
        "klog offsets {}",
        "klog elect-leader --preferred {}",
        "klog log-dirs --describe --topic-list {}",
    ],
)
def test_topics_of_the_cluster_are_completed(klog: Run, topic: str, words: str) -> None:
    # A busy machine may take longer than a completion waits.
    eventually(lambda: topic in completions(words.format(topic[:-1])))


@pytest.mark.parametrize(
    "words",
    [
        "configs describe --broker ",
        "cluster unregister ",
        "cluster unregister --id ",
        "brokers configs ",
        "log-dirs --broker ",
        "reassign plan --drain ",
        "reassign plan --add ",
        "reassign plan --brokers ",
        "reassign dirs --brokers ",
        "reassign generate --broker-list ",
    ],
)
def test_brokers_of_the_cluster_are_completed(klog: Run, words: str) -> None:
    eventually(lambda: completions(f"klog {words}"))


def test_transactional_ids_of_the_cluster_are_completed(klog: Run, topic: str, cluster: str) -> None:
    name = f"id-of-{topic}"
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster, "transactional.id": name})
    producer.init_transactions(60)
    for words in (
        "transactions describe",
        "transactions describe --transactional-id",
        "produce --transactional-id",
    ):
        eventually(lambda words=words: completions(f"klog {words} {name[:-1]}") == [name])


def test_names_of_new_topics_are_not_completed(klog: Run, topic: str) -> None:
    assert completions(f"klog topics create {topic[:-1]}") == []


def test_without_a_cluster_nothing_is_completed_and_nothing_is_said() -> None:
    assert completions("klog consume ", KLOG_BOOTSTRAP_SERVER="127.0.0.1:1") == []
