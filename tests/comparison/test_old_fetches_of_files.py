"""Fetch 0 to 3 of log directories that Kafka wrote, also with messages of formats 0 and 1 among batches.

Kafka 3.9.1 opens a copy of a directory, and klog serves the directory read-only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from klog.protocol.apis import ApiKey
from klog.protocol.channel import Channel
from klog.protocol.fetch_request import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from klog.protocol.fetch_response import PartitionFetched, decode_fetch_response
from klog.protocol.messages import build, request_class
from tests.comparison.test_old_fetches import content
from tests.corpora import LogDirectory, log_dirs
from tests.peers.broker import ZooKeeperBroker
from tests.peers.kafka import KafkaPeer
from tests.server.handlers.parts import part_of
from tests.server.read_only.serving import served
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

NAMES = ("up-010-11-28-39", "up-08-010-11-28-39", "k39-codecs", "k39-compact", "k39-txn")
DIRECTORIES = [each for each in log_dirs() if each.corpus.path.name in NAMES]
MAX_BYTES = 1 << 20
EARLIEST = -2


@dataclass
class Twins:
    """Kafka and klog, with the partitions of a directory."""

    channels: tuple[Channel, Channel]
    partitions: list[tuple[str, int]]

    def fetch(
        self, version: int, topic: str, partition: int, offset: int, max_bytes: int
    ) -> tuple[PartitionFetched, PartitionFetched]:
        part = FetchPartition(partition, -1, offset, -1, -1, max_bytes)
        body = encode_fetch_request(
            version, FetchRequest(0, 1, 1 << 30, 0, [FetchTopic(topic, None, [part])])
        )
        found = []
        for channel in self.channels:
            answer = decode_fetch_response(version, channel.exchange(ApiKey.FETCH, version, [body]))
            found.append(answer.topics[0].partitions[0])
        return found[0], found[1]

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        """The offsets that both have. klog's begin at the first record, wherever the log began."""
        first = max(int(each.offset) for each in self._starts(topic, partition))
        return first, self.fetch(4, topic, partition, first, 1)[0].high_watermark

    def are_led(self) -> bool:
        """Whether both lead all partitions. Kafka reports its start before the controller has told it so."""
        return not any(each.error_code for where in self.partitions for each in self._starts(*where))

    def _starts(self, topic: str, partition: int) -> list[Any]:
        api = ApiKey.LIST_OFFSETS
        asked = part_of(api, 1, "ListOffsetsPartition", partition_index=partition, timestamp=EARLIEST)
        topics = (part_of(api, 1, "ListOffsetsTopic", name=topic, partitions=(asked,)),)
        request = build(request_class(api, 1), replica_id=-1, topics=topics)
        return [channel.send(request).topics[0].partitions[0] for channel in self.channels]


@pytest.fixture(scope="module", params=DIRECTORIES, ids=str)
def twins(
    request: pytest.FixtureRequest, kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Twins]:
    log_dir: LogDirectory = request.param
    work: Path = tmp_path_factory.mktemp("kafka") / "work"
    work.mkdir()
    names = [path.name.rpartition("-") for path in sorted(log_dir.path.iterdir()) if path.is_dir()]
    partitions = [(topic, int(number)) for topic, _, number in names]
    with (
        ZooKeeperBroker.on_log_directory(log_dir.path, work) as kafka,
        served(log_dir.path) as ours,
        Channel("127.0.0.1", kafka.port) as first,
        Channel("127.0.0.1", int(ours.rpartition(":")[2])) as second,
    ):
        both = Twins((first, second), partitions)
        eventually(both.are_led)
        yield both


@pytest.mark.parametrize("version", range(4))
def test_messages_are_those_of_kafka(twins: Twins, version: int) -> None:
    compared = 0
    for topic, partition in twins.partitions:
        first, last = twins.ends(topic, partition)
        steps = (0, 1, 2, 5, (last - first) // 3, (last - first) // 2, last - first - 1, last - first)
        for offset in sorted({first + step for step in steps}):
            for max_bytes in (MAX_BYTES, 700):
                kafka, ours = twins.fetch(version, topic, partition, offset, max_bytes)
                where = topic, partition, offset, max_bytes
                assert ours._replace(records=None) == kafka._replace(records=None), where
                if ours.records is None or ours.records == kafka.records:
                    continue
                messages, others = content(ours.records), without_repeated(content(kafka.records))
                # How many fit depends on the compressor, and on what Kafka repeats.
                least = min(len(messages), len(others))
                assert least or not messages
                assert messages[:least] == others[:least], where
                if max_bytes == MAX_BYTES:
                    assert len(messages) - least <= 1, where
                compared += least
    assert compared


def without_repeated(messages: list[tuple]) -> list[tuple]:
    """Kafka repeats the first batch that is left if nothing was left of the one before it."""
    offsets = [message[2] for message in messages]
    again = next((at for at in range(1, len(offsets)) if offsets[at] <= offsets[at - 1]), 0)
    assert not again or messages[:again] == messages[again : 2 * again]
    return messages[again:]
