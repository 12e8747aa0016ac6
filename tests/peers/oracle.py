"""Describes data as JSON Lines, as in the fixtures, with Kafka's own reader of files and its consumer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.peers.kafka import QUICK_FLAGS, KafkaPeer
from tests.peers.tool_server import ToolServer

CLIENT_FLAGS = (*QUICK_FLAGS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


class OracleFailedError(Exception):
    """One of our Java programs failed. Contains its stderr."""


def describe_partitions(peer: KafkaPeer | ToolServer, partitions: Sequence[Path], output: Path) -> None:
    """Writes `output/<tp>.batches.jsonl` and `output/<tp>.records.jsonl` for each partition directory."""
    args = []
    for partition in partitions:
        stem = output / partition.name
        args += [str(partition), f"{stem}.batches.jsonl", f"{stem}.records.jsonl"]
    run_program(peer, "LogOracle", *args)


def consume(
    peer: KafkaPeer | ToolServer,
    bootstrap: str,
    partitions: Sequence[str],
    output: Path,
    isolation: str = "read_uncommitted",
) -> None:
    """Reads each partition (`topic-0`) to its end and writes `output/<tp>.consumer.<isolation>.jsonl`."""
    args = []
    for partition in partitions:
        topic, _, number = partition.rpartition("-")
        args += [topic, number, str(output / f"{partition}.consumer.{isolation}.jsonl")]
    run_program(peer, "Consume", bootstrap, isolation, *args)


def run_program(peer: KafkaPeer | ToolServer, main_class: str, *args: str) -> None:
    """Runs one of our Java programs, in a JVM that runs already if there is one. Raises OracleFailedError."""
    if isinstance(peer, ToolServer):
        ended = peer.run(main_class, *args)
        status, error = ended.status, ended.err
    else:
        done = peer.java(main_class, *args, jvm_flags=CLIENT_FLAGS)
        status, error = done.returncode, done.stderr.decode("utf-8", "replace")
    if status != 0:
        raise OracleFailedError(f"{main_class} {args}: {error}")
