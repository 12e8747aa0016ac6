"""The configs of one topic: overrides over the broker's defaults, and the typed values that the log uses.

Precedence (KIP-226): topic override, dynamic config of the broker and of the cluster, the broker's file,
Kafka's default. The default of a topic config is the broker config that `SYNONYMS` names first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from klog.config.keys import ConfigError, ConfigKey, Value, text_of
from klog.config.topic_keys import KEYS
from klog.formats.errors import UsageError

KEYS_BY_NAME: Final[Mapping[str, ConfigKey]] = {key.name: key for key in KEYS}

_MS_PER_MINUTE: Final = 60_000
_MS_PER_HOUR: Final = 3_600_000


class Synonym(NamedTuple):
    """A broker config that is the default of a topic config. `factor` converts its unit to the topic's."""

    broker_config: str
    factor: int = 1


_OTHER_NAMES: Final[Mapping[str, tuple[Synonym, ...]]] = {
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", _MS_PER_HOUR)),
    "segment.jitter.ms": (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _MS_PER_HOUR)),
    "segment.index.bytes": (Synonym("log.index.size.max.bytes"),),
    "flush.messages": (Synonym("log.flush.interval.messages"),),
    "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", _MS_PER_MINUTE),
        Synonym("log.retention.hours", _MS_PER_HOUR),
    ),
    "max.message.bytes": (Synonym("message.max.bytes"),),
    "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms"),),
    "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
}
_CLEANER_NAMES: Final = ("delete.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms")
_SAME_NAMES: Final = (
    "unclean.leader.election.enable",
    "min.insync.replicas",
    "compression.type",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
)
_NO_BROKER_DEFAULT: Final = (
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
)


def _synonyms(name: str) -> tuple[Synonym, ...]:
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    if name in _NO_BROKER_DEFAULT:
        return ()
    if name in _SAME_NAMES:
        return (Synonym(name),)
    return (Synonym(f"log.cleaner.{name}" if name in _CLEANER_NAMES else f"log.{name}"),)


SYNONYMS: Final[Mapping[str, tuple[Synonym, ...]]] = {key.name: _synonyms(key.name) for key in KEYS}
"""Each topic config with the broker configs that give its default. The first one that is set wins."""


def defaults(broker_value: Callable[[str], Value]) -> dict[str, Value]:
    """The values of all topic configs without overrides. `broker_value` returns a broker config."""
    values: dict[str, Value] = {}
    for key in KEYS:
        values[key.name] = key.default
        for synonym in SYNONYMS[key.name]:
            found = broker_value(synonym.broker_config)
            if found is not None:
                # A negative number of hours or minutes means no limit, which is -1 in ms.
                values[key.name] = (
                    max(found * synonym.factor, -1)
                    if isinstance(found, int) and synonym.factor > 1
                    else found
                )
                break
    return values


def parse_overrides(overrides: Mapping[str, str]) -> dict[str, Value]:
    """The values of a topic's overrides.

    Raises `ConfigError` (invalid value) or `UsageError` (unknown name).
    """
    values: dict[str, Value] = {}
    for name, text in overrides.items():
        key = KEYS_BY_NAME.get(name)
        if key is None:
            raise UsageError(f"Unknown topic config name: {name}")
        values[name] = key.parse(text)
    return values


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The topic configs that the log of a partition uses. Names and units are Kafka's."""

    cleanup_policy: frozenset[str]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    index_interval_bytes: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_downconversion_enable: bool
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool

    @property
    def compact(self) -> bool:
        """Whether the log is compacted."""
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """Whether retention by time and size applies to the log."""
        return "delete" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        """Whether the broker sets the timestamps of records."""
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def roll_ms(self) -> int:
        """The age at which a segment rolls.

        It is at most the maximum compaction lag, so that compaction gets every record in time.
        """
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms


_FIELDS: Final = tuple(TopicConfig.__dataclass_fields__)


def topic_config(values: Mapping[str, Value]) -> TopicConfig:
    """The typed configs of one topic."""
    found: dict[str, Any] = {field: values[field.replace("_", ".")] for field in _FIELDS}
    found["cleanup_policy"] = frozenset(found["cleanup_policy"])
    return TopicConfig(**found)


def check_topic_values(values: Mapping[str, Value]) -> None:
    """Checks whether a topic may be given these configs. Raises `ConfigError` if two contradict each other.

    Logs use such configs all the same, because a default of the broker may have changed later.
    """
    config = topic_config(values)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            "min.compaction.lag.ms",
            str(config.min_compaction_lag_ms),
            f"it is greater than max.compaction.lag.ms ({config.max_compaction_lag_ms})",
        )


def default_topic_config(overrides: Mapping[str, str] | None = None) -> TopicConfig:
    """The configs of a topic on a broker with Kafka's defaults and these overrides.

    Raises the errors of the parts.
    """
    values = defaults(lambda _: None) | parse_overrides(overrides or {})
    check_topic_values(values)
    return topic_config(values)


def texts(values: Mapping[str, Value], names: Iterable[str]) -> dict[str, str | None]:
    """The values of these configs in Kafka's spelling."""
    return {name: text_of(values[name]) for name in names}
