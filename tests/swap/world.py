"""A cluster of one broker that klog and Kafka run in turns, and the records that it must have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from kazoo.client import KazooClient

from tests.peers.broker import SINGLE_BROKER, Config, ZooKeeperBroker
from tests.peers.zookeeper import ZooKeeperServer
from tests.swap.clients import Admin, Writer, Written, read
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
# Long enough that sessions do not expire on a busy machine.
SESSION_MS: Final = 8000
# The default is the session's timeout, and several JVMs may start at once.
CONNECTION_MS: Final = 60_000

# Warnings of Kafka 3.9.1 at each start on ZooKeeper: its controller starts before its own socket server, and
# there are no metadata versions.
_USUAL_KAFKA_WARNINGS: Final = re.compile(
    r"could not be established|RequestSendThread|connection to broker .* was unsuccessful"
    r"|metrics and config|not a known config|No meta\.properties file|deprecated"
)
_RECOVERY: Final = re.compile(
    r"recovering|attempting recovery|no clean shutdown file|corrupt|could not find .* index|orphaned"
    r"|deleting (the )?index",
    re.IGNORECASE,
)


class World:
    """One ZooKeeper, two log directories, and all records that a broker on them has acknowledged."""

    def __init__(self, work: Path, zookeeper: ZooKeeperServer) -> None:
        self.work = work
        self.zookeeper = zookeeper
        self.directories = [work / "a", work / "b"]
        self.acknowledged: Written = {}
        self.log_starts: dict[tuple[str, int], int] = {}
        self.compacted: set[str] = set()
        self._kafka_log_bytes = 0
        self._writing_to = ""
        self._writers: dict[str, Writer] = {}

    @property
    def _config(self) -> Config:
        return {
            **SINGLE_BROKER,
            "broker.id": 7,
            "zookeeper.connect": self.zookeeper.hosts,
            "zookeeper.session.timeout.ms": SESSION_MS,
            "zookeeper.connection.timeout.ms": CONNECTION_MS,
            "log.dirs": ",".join(map(str, self.directories)),
            "log.cleaner.backoff.ms": 100,
            "log.initial.task.delay.ms": 100,
            "log.retention.check.interval.ms": 500,
        }

    # -- the brokers -----------------------------------------------------------------------------------------

    def klog(self, config: Config | None = None) -> KlogBroker:
        self._wait_until_nobody_is_registered()
        return KlogBroker(self.work / "klog", {**self._config, **(config or {})}).start()

    def kafka(self, config: Config | None = None) -> ZooKeeperBroker:
        self._wait_until_nobody_is_registered()
        log = self.work / "kafka" / "broker.log"
        self._kafka_log_bytes = log.stat().st_size if log.exists() else 0
        return ZooKeeperBroker(self.work / "kafka", {**self._config, **(config or {})}, self.zookeeper.peer)

    def _wait_until_nobody_is_registered(self) -> None:
        """Waits until the session of a killed broker, and so its registration, has expired."""
        client = KazooClient(self.zookeeper.hosts)
        client.start(60)
        try:
            eventually(lambda: client.exists("/brokers/ids/7") is None)
        finally:
            client.stop()
            client.close()

    def _kafka_lines(self) -> list[str]:
        text = (self.work / "kafka" / "broker.log").read_bytes()[self._kafka_log_bytes :]
        return text.decode("utf-8", "replace").splitlines()

    @property
    def kafka_recovery(self) -> list[str]:
        """The lines of Kafka's log since its last start that report a recovery."""
        return [line for line in self._kafka_lines() if "kafka.log" in line and _RECOVERY.search(line)]

    @property
    def kafka_complaints(self) -> list[str]:
        """The lines of Kafka's log since its start that are worse than INFO, except its usual warnings."""
        return [
            line
            for line in self._kafka_lines()
            if re.search(r"\] (WARN|ERROR|FATAL) ", line) and not _USUAL_KAFKA_WARNINGS.search(line)
        ]

    # -- topics and records ----------------------------------------------------------------------------------

    def write(self, bootstrap: str, topic: str, count: int, marker: str, codec: str = "none") -> None:
        """Writes records of every form: null keys and values, headers, large ones. All are acknowledged."""
        writer = self._writer(bootstrap, codec)
        for number in range(count):
            key = f"key-{number % 40}".encode() if topic in self.compacted or number % 3 else None
            value = None if number % 50 == 49 else f"{marker}/{number}/".encode() * (1 + number % 20)
            headers = [("by", marker.encode()), ("none", None)] if number % 4 == 0 else []
            writer.write(topic, value, key, headers=headers)
        writer.finish()

    def _writer(self, bootstrap: str, codec: str) -> Writer:
        """The producer for a codec. It is kept, because a new idempotent producer needs half a second."""
        if self._writing_to != bootstrap:
            self._writing_to, self._writers = bootstrap, {}
        if codec not in self._writers:
            # A batch larger than a segment is refused.
            self._writers[codec] = Writer(
                bootstrap, self.acknowledged, compression_type=codec, batch_num_messages=25
            )
        return self._writers[codec]

    def create(self, admin: Admin, name: str, partitions: int = 1, **configs: str | int) -> None:
        texts = {key.replace("_", "."): str(value) for key, value in configs.items()}
        admin.create({name: (partitions, texts)})
        self.acknowledged.update({(name, number): {} for number in range(partitions)})
        if "compact" in texts.get("cleanup.policy", ""):
            self.compacted.add(name)

    def delete(self, admin: Admin, name: str) -> None:
        admin.delete([name])
        for partition in [each for each in self.acknowledged if each[0] == name]:
            del self.acknowledged[partition]

    def delete_records(self, admin: Admin, topic: str, number: int, before: int) -> None:
        admin.delete_records({(topic, number): before})
        self.log_starts[topic, number] = before

    def check(self, bootstrap: str) -> None:
        """Checks that each acknowledged record is served once, unchanged. Compaction may drop old ones."""
        found = self.read(bootstrap)
        for partition, offsets in self.acknowledged.items():
            start = self.log_starts.get(partition, 0)
            wanted = {offset: record for offset, record in offsets.items() if offset >= start}
            if partition[0] in self.compacted:
                latest = {record.key: offset for offset, record in wanted.items()}
                living = {offset for offset in latest.values() if wanted[offset].value is not None}
                assert living <= set(found[partition]), partition
                assert found[partition].items() <= wanted.items(), partition
            else:
                assert found[partition] == wanted, partition

    def read(self, bootstrap: str) -> Written:
        """All records of the partitions, once they have leaders."""
        admin = Admin(bootstrap)
        eventually(lambda: self.acknowledged.keys() <= admin.led())
        return read(bootstrap, self.acknowledged)
