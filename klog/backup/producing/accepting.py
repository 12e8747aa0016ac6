"""What the brokers of a cluster take of the batches of a backup. It is asked before anything is written.

Rules: Kafka's `LogValidator` (sizes, formats, codecs, times), KIP-110 (zstd needs Produce version 7 and
`inter.broker.protocol.version` 2.1), KIP-937 (limits of times). A topic's configs go before those of brokers.
What this user may not know is not checked here: brokers refuse it when it is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from klog.backup.restoring.plan import PlannedPartition
from klog.client.asking import broker_ids
from klog.client.cluster import Cluster
from klog.config.kafka_versions import is_before
from klog.formats import compression
from klog.formats.errors import UsageError
from klog.protocol.apis import ApiKey

_LARGEST: Final = "max.message.bytes"
_SEGMENT: Final = "segment.bytes"
_CODEC: Final = "compression.type"
_FORMAT: Final = "message.format.version"
_TYPE: Final = "message.timestamp.type"
_BEFORE: Final = "message.timestamp.before.max.ms"
_AFTER: Final = "message.timestamp.after.max.ms"
_DIFFERENCE: Final = "message.timestamp.difference.max.ms"
PROTOCOL: Final = "inter.broker.protocol.version"
OF_BROKERS: Final[Mapping[str, str]] = {
    _LARGEST: "message.max.bytes",
    _CODEC: _CODEC,
    **{name: f"log.{name}" for name in (_SEGMENT, _FORMAT, _TYPE, _BEFORE, _AFTER, _DIFFERENCE)},
}
"""The configs of topics that are asked for here, and what brokers call them."""

_ZSTD_FROM: Final = 7
_UNLIMITED_MS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Accepting:
    """What counts for a topic: its configs or those of brokers, and the brokers'
    `inter.broker.protocol.version` ("" if it is not known).
    """

    topic: str
    values: Mapping[str, str]
    protocol: str
    exists: bool

    @property
    def sets_time(self) -> bool:
        """Whether the brokers give records the time of arrival."""
        return self.values.get(_TYPE) == "LogAppendTime"

    def require(self, cluster: Cluster, partitions: Iterable[PlannedPartition]) -> None:
        """Raises `UsageError` if the brokers would refuse what comes back, `ClientError`, `ChannelError`."""
        found = list(partitions)
        self._require_room(max(each.batches.largest_bytes for each in found))
        if any(each.batches.records for each in found):
            self._require_format()
            self._require_times(found, cluster.clock.wall_ms())
        if any(compression.ZSTD in each.batches.codecs for each in found):
            self._require_zstd(cluster)

    def _require_room(self, largest_bytes: int) -> None:
        for config in (_LARGEST, _SEGMENT):
            text = self.values.get(config, "")
            if text.isdecimal() and largest_bytes > int(text):
                raise UsageError(
                    f"topic {self.topic}: the largest batch in the backup has {largest_bytes} bytes, the"
                    f" cluster takes {text}",
                    cure=f"set {self._where(config)} to at least {largest_bytes}, or create the topic before"
                    f" with such a {config}",
                )

    def _require_format(self) -> None:
        """Brokers of Kafka 3 look at the format only if their protocol is older."""
        version = self.values.get(_FORMAT, "")
        if is_before(version, "0.11.0") and (not self.protocol or is_before(self.protocol, "3.0")):
            raise UsageError(
                f"topic {self.topic}: {self._where(_FORMAT)} is {version}, and records of idempotent"
                f" producers need 0.11.0",
                cure=f"set it to 0.11.0 or later, or create the topic before with such a {_FORMAT}",
            )

    def _require_times(self, partitions: Iterable[PlannedPartition], now_ms: int) -> None:
        if self.sets_time:
            return
        for each in partitions:
            batches = each.batches
            for name, distance_ms in (
                (_BEFORE, None if batches.oldest_ms is None else now_ms - batches.oldest_ms),
                (_AFTER, None if batches.newest_ms is None else batches.newest_ms - now_ms),
            ):
                config, limit_ms = self._limit(name)
                if distance_ms is not None and distance_ms > limit_ms:
                    direction = "older" if name == _BEFORE else "newer"
                    raise UsageError(
                        f"{each.target}: there are records {distance_ms} ms {direction} than now, the cluster"
                        f" takes {limit_ms}",
                        cure=f"set {self._where(config)} to more until the restore is complete, or create the"
                        f" topic before with more",
                    )

    def _limit(self, name: str) -> tuple[str, int]:
        """The config that limits times, and its value. The older config counts if the newer is not set."""
        for config in (name, _DIFFERENCE):
            text = self.values.get(config, "")
            if text.isdecimal() and int(text) < _UNLIMITED_MS:
                return config, int(text)
        return name, _UNLIMITED_MS

    def _require_zstd(self, cluster: Cluster) -> None:
        cure = "upgrade the brokers, or restore with --to and convert the directories with klog convert"
        for broker_id in broker_ids(cluster):
            if cluster.connection(broker_id).version_of(ApiKey.PRODUCE) < _ZSTD_FROM:
                raise UsageError(
                    f"topic {self.topic} has batches in zstd, which broker {broker_id} does not take: it is"
                    f" older than Kafka 2.1",
                    cure=cure,
                )
        keeps = self.values.get(_CODEC, "producer") in ("producer", "zstd")
        if keeps and is_before(self.protocol, "2.1"):
            raise UsageError(
                f"topic {self.topic} has batches in zstd, which brokers do not take while their {PROTOCOL} is"
                f" {self.protocol}",
                cure=f"set {PROTOCOL} to 2.1 or later, or create the topic before with another {_CODEC}",
            )

    def _where(self, config: str) -> str:
        return f"{config} of the topic" if self.exists else f"{OF_BROKERS[config]} of the brokers"
