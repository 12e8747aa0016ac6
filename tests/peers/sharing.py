"""Records the classes of brokers, tools and clients, which JVMs of later tests then share.

One broker of each version starts, serves a few tools and clients, and stops. What it and they have loaded
goes into two archives beside our programs.
"""

from __future__ import annotations

import tempfile
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.peers.broker import BrokerFailedError, KRaftBroker, ZooKeeperBroker
from tests.peers.kafka import QUICK_FLAGS, KafkaPeer

_TOPIC: Final = "recorded"
_GROUP: Final = "recorders"
_RECORDS: Final = b"one\ntwo\n"


class _RecordingPeer(KafkaPeer):
    """Kafka whose JVMs write what classes they have loaded when they end."""

    @property
    def class_flags(self) -> tuple[str, ...]:
        return (f"-XX:ArchiveClassesAtExit={_new(self.class_archive)}",)

    @property
    def tool_class_flags(self) -> tuple[str, ...]:
        return ()


def share_classes(kind: type[ZooKeeperBroker | KRaftBroker], version: str) -> None:
    """Fills `KafkaPeer.class_archive` and `KafkaPeer.tool_archive`.

    Raises PeerUnavailableError, and BrokerFailedError if a JVM fails.
    """
    peer = _RecordingPeer(version)
    archives = (peer.class_archive, peer.tool_archive)
    if all(each.exists() for each in archives):
        return
    with tempfile.TemporaryDirectory(prefix="classes-") as work, kind(Path(work), peer=peer) as broker:
        _record_tools(peer, broker.bootstrap, Path(work))
    for archive in archives:
        _new(archive).rename(archive)


def _new(archive: Path) -> Path:
    return archive.with_name(f"{archive.name}.new")


def _record_tools(peer: KafkaPeer, bootstrap: str, work: Path) -> None:
    """Runs tools and clients one after the other in one JVM, which writes the archive at its end."""
    producer = {3: "kafka.tools.ConsoleProducer", 4: "org.apache.kafka.tools.ConsoleProducer"}[peer.major]
    consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    groups = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    at = ("--bootstrap-server", bootstrap)
    words: list[Sequence[object]] = [
        ("kafka.tools.StorageTool", "random-uuid"),
        ("org.apache.kafka.tools.TopicCommand", *at, "--create", "--topic", _TOPIC),
        (producer, *at, "--topic", _TOPIC),
        (consumer, *at, "--topic", _TOPIC, "--group", _GROUP, "--max-messages", 2, "--from-beginning"),
        ("Consume", bootstrap, "read_committed", _TOPIC, 0, work / "consumed"),
        (groups, *at, "--describe", "--group", _GROUP),
        ("kafka.admin.ConfigCommand", *at, "--describe", "--entity-type", "topics", "--entity-name", _TOPIC),
    ]
    stdin = b"".join(map(_request, words))
    flags = (*QUICK_FLAGS, f"-XX:ArchiveClassesAtExit={_new(peer.tool_archive)}")
    done = peer.java("ToolServer", jvm_flags=flags, stdin=stdin)
    statuses = [line.split(b"\t")[0] for line in done.stdout.splitlines() if line.count(b"\t") == 2]
    if done.returncode != 0 or statuses != [b"0"] * len(words):
        raise BrokerFailedError(f"tools ended with {statuses}: {done.stderr.decode('utf-8', 'replace')}")


def _request(words: Sequence[object]) -> bytes:
    """A line for `ToolServer.java`: a main class, what it reads from stdin, its arguments."""
    main_class, *args = map(str, words)
    return "\t".join((main_class, b64encode(_RECORDS).decode(), *args)).encode() + b"\n"
