"""Metrics of the logs: Kafka's `kafka.log:type=Log`, `LogManager`, `LogCleaner` and `LogCleanerManager`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from klog.server.metrics.exposition import Labels, Metric, Sample, gauge, gauges
from klog.storage.cleaner.log_cleaner import LogCleaner
from klog.storage.log.partition_log import PartitionLog

_OF_A_LOG: Final[tuple[tuple[str, str, Callable[[PartitionLog], int]], ...]] = (
    ("logstartoffset", "first offset", lambda log: log.log_start_offset),
    ("logendoffset", "next offset", lambda log: log.log_end_offset),
    ("size", "bytes of all segments", lambda log: log.size_bytes),
    ("numlogsegments", "segments", lambda log: len(log.segments)),
)
# The names of Kafka's gauges, first those of the cleaner manager, then those of the cleaner.
_MANAGER_GAUGES: Final = (
    ("max-dirty-percent", "dirty share of the dirtiest log"),
    ("time-since-last-run-ms", "milliseconds since logs were last checked"),
)
_CLEANER_GAUGES: Final = (
    ("max-buffer-utilization-percent", "how full the offset map of the last cleaning was"),
    ("cleaner-recopy-percent", "share of the bytes of the last cleaning that were kept"),
    ("max-clean-time-secs", "seconds of the last cleaning"),
    ("max-compaction-delay-secs", "seconds by which max.compaction.lag.ms is exceeded"),
    ("DeadThreadCount", "cleaner threads that have ended"),
)


def log_metrics(logs: Sequence[PartitionLog]) -> Iterator[Metric]:
    """The metrics of each log."""
    labels: list[Labels] = [
        {"topic": log.partition.topic, "partition": log.partition.partition} for log in logs
    ]
    for name, help_text, value in _OF_A_LOG:
        samples = map(Sample, labels, map(value, logs))
        yield Metric(f"kafka_log_log_{name}", "gauge", help_text, samples)


def directory_metrics(online: Sequence[str], offline: Sequence[str]) -> Iterator[Metric]:
    """The metrics of the log directories."""
    yield gauge("kafka_log_logmanager_offlinelogdirectorycount", "failed log directories", len(offline))
    failed = {path: path in offline for path in (*online, *offline)}
    yield gauges("kafka_log_logmanager_logdirectoryoffline", "1 if it has failed", "logDirectory", failed)


def cleaner_metrics(cleaner: LogCleaner, online: Sequence[str]) -> Iterator[Metric]:
    """The metrics of the cleaner."""
    found = cleaner.gauges()
    for kind, known in (("logcleanermanager", _MANAGER_GAUGES), ("logcleaner", _CLEANER_GAUGES)):
        for name, help_text in known:
            yield gauge(f"kafka_log_{kind}_{name.lower().replace('-', '_')}", help_text, found[name])
    counts = {path: cleaner.uncleanable_count(path) for path in online}
    yield gauges(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "logs that are not cleaned any more, because cleaning them failed",
        "logDirectory",
        counts,
    )
    # Computing the bytes reads the logs, so it is done only if there are such logs.
    sizes = {path: cleaner.uncleanable_bytes(path) if count else 0 for path, count in counts.items()}
    name = "kafka_log_logcleanermanager_uncleanable_bytes"
    yield gauges(name, "bytes in them that could be cleaned", "logDirectory", sizes)
