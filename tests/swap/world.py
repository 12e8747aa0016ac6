"""What a cluster of one broker holds by turns of klog and Kafka, and what each must still show of it."""

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
# Long enough that a busy machine does not expire sessions on its own.
SESSION_MS: Final = 4000

# What Kafka 3.9.1 itself warns of at each start on ZooKeeper: its controller is quicker than its own socket
# server, and nobody has told it of metadata versions.
_KAFKA_START_NOISE: Final = re.compile(
    r"could not be established|RequestSendThread|connection to broker .* was unsuccessful"
    r"|metrics and config|not a known config|No meta\.properties file|deprecated"
)
_RECOVERY: Final = re.compile(
    r"recovering|attempting recovery|no clean shutdown file|corrupt|could not find .* index|orphaned"
    r"|deleting (the )?index",
    re.IGNORECASE,
)


class World:
    """One ZooKeeper, two log directories, and what was acknowledged by whoever served them."""

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
            "log.dirs": ",".join(map(str, self.directories)),
            "log.cleaner.backoff.ms": 100,
            "log.initial.task.delay.ms": 100,
            "log.retention.check.interval.ms": 500,
        }

    # -- who serves ------------------------------------------------------------------------------------------

    def klog(self) -> KlogBroker:
        self._wait_until_nobody_is_registered()
        return KlogBroker(self.work / "klog", self._config).start()

    def kafka(self) -> ZooKeeperBroker:
        self._wait_until_nobody_is_registered()
        log = self.work / "kafka" / "broker.log"
        self._kafka_log_bytes = log.stat().st_size if log.exists() else 0
        return ZooKeeperBroker(self.work / "kafka", self._config, self.zookeeper.peer)

    def _wait_until_nobody_is_registered(self) -> None:
        """A killed broker's session lives on for a while, and its id with it."""
        client = KazooClient(self.zookeeper.hosts)
        client.start()
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
        """The lines of Kafka's log since its last start that tell of mending."""
        return [line for line in self._kafka_lines() if "kafka.log" in line and _RECOVERY.search(line)]

    @property
    def kafka_complaints(self) -> list[str]:
        """The lines of Kafka's log since its last start that are worse than INFO, its own noise left out."""
        return [
            line
            for line in self._kafka_lines()
            if re.search(r"\] (WARN|ERROR|FATAL) ", line) and not _KAFKA_START_NOISE.search(line)
        ]

    # -- what there is ---------------------------------------------------------------------------------------

    def write(self, bootstrap: str, topic: str, count: int, marker: str, codec: str = "none") -> None:
        """Acknowledged records of every form: null keys and values, headers, large ones."""
        writer = self._writer(bootstrap, codec)
        for number in range(count):
            key = f"key-{number % 40}".encode() if topic in self.compacted or number % 3 else None
            value = None if number % 50 == 49 else f"{marker}/{number}/".encode() * (1 + number % 20)
            headers = [("by", marker.encode()), ("none", None)] if number % 4 == 0 else []
            writer.write(topic, value, key, headers=headers)
        writer.finish()

    def _writer(self, bootstrap: str, codec: str) -> Writer:
        """One for each codec: an idempotent producer takes half a second until it can write."""
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
        for where in [where for where in self.acknowledged if where[0] == name]:
            del self.acknowledged[where]

    def delete_records(self, admin: Admin, topic: str, number: int, before: int) -> None:
        admin.delete_records({(topic, number): before})
        self.log_starts[topic, number] = before

    def check(self, bootstrap: str) -> None:
        """Every acknowledged record is served, once, as it was acknowledged; compaction may drop old ones."""
        found = self.read(bootstrap)
        for where, offsets in self.acknowledged.items():
            start = self.log_starts.get(where, 0)
            wanted = {offset: record for offset, record in offsets.items() if offset >= start}
            if where[0] in self.compacted:
                latest = {record.key: offset for offset, record in wanted.items()}
                living = {offset for offset in latest.values() if wanted[offset].value is not None}
                assert living <= set(found[where]), where
                assert found[where].items() <= wanted.items(), where
            else:
                assert found[where] == wanted, where

    def read(self, bootstrap: str) -> Written:
        """All that is in the partitions that should be there, once they have leaders."""
        admin = Admin(bootstrap)
        eventually(lambda: self.acknowledged.keys() <= admin.led())
        return read(bootstrap, self.acknowledged)
