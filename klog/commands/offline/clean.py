"""`klog clean`: compacts partition directories that no broker has open, and applies retention to them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import typer

from klog.commands.offline.locks import hold
from klog.commands.offline.options import DryRun, JsonPerPartition, PartitionPaths, QuietUnlessChanged, Yes
from klog.commands.shared.cells import human_bytes
from klog.commands.shared.messages import print_error, print_line, print_note
from klog.commands.shared.option_sets import flag, optional, valued
from klog.commands.shared.terminal import confirmed, count_of, note_slowness, progress
from klog.formats.errors import KlogError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.config.topic import TopicConfig
    from klog.storage.cleaner.offline import CleanedLog, CleaningPlan, OfflineDirectory

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TopicRules:
    """The configs of the topics."""

    policy: str | None = valued(
        "POLICY",
        "The topics' cleanup.policy: compact, delete or compact,delete. Required unless --status is "
        "given, since the directory does not contain it.",
    )
    min_dirty_ratio: str | None = valued("RATIO", "min.cleanable.dirty.ratio [default: 0.5].")
    retention_ms: str | None = valued("MS", "retention.ms, -1 for ever [default: a week].")
    retention_bytes: str | None = valued("BYTES", "retention.bytes [default: -1, no limit].")
    delete_retention_ms: str | None = valued("MS", "delete.retention.ms [default: a day].")
    segment_bytes: str | None = valued("BYTES", "segment.bytes [default: 1 GiB].")
    min_lag_ms: str | None = valued("MS", "min.compaction.lag.ms [default: 0].")
    max_lag_ms: str | None = valued("MS", "max.compaction.lag.ms [default: none].")
    config: list[str] | None = valued("NAME=VALUE", "Any other config of the topics (repeatable).")

    def topic_config(self) -> TopicConfig:
        """The configs that the options give, Kafka's defaults for the others. Raises UsageError."""
        from klog.config.topic import default_topic_config

        overrides = {}
        for pair in self.config or ():
            name, equals, value = pair.partition("=")
            if not equals:
                raise UsageError(f"--config {pair} is not NAME=VALUE")
            overrides[name.strip()] = value
        given = {
            "cleanup.policy": self.policy or "compact",
            "min.cleanable.dirty.ratio": self.min_dirty_ratio,
            "retention.ms": self.retention_ms,
            "retention.bytes": self.retention_bytes,
            "delete.retention.ms": self.delete_retention_ms,
            "segment.bytes": self.segment_bytes,
            "min.compaction.lag.ms": self.min_lag_ms,
            "max.compaction.lag.ms": self.max_lag_ms,
        }
        return default_topic_config(
            overrides | {name: value for name, value in given.items() if value is not None}
        )


@dataclass(frozen=True, slots=True)
class CleanOptions:
    """What to do, and what to print."""

    status: bool = flag(
        "Show what is clean, dirty and cleanable, or why not; change nothing [policy: compact]."
    )
    dry_run: DryRun = False
    yes: Yes = False
    dedupe_buffer_bytes: int = optional(
        134_217_728, "log.cleaner.dedupe.buffer.size: 24 bytes per key.", least=72
    )
    as_json: JsonPerPartition = False
    quiet: QuietUnlessChanged = False


def clean(
    paths: PartitionPaths,
    rules: TopicRules,
    options: CleanOptions,
) -> None:
    """Compact logs and apply retention offline, by the topics' rules, as a broker's cleaner would now.

    The same rules apply to all partitions that you name, so name the directories of one topic. The active
    segment, open transactions and records above the high watermark are never compacted. Records that
    compaction or retention removes are deleted and not kept: files are renamed to .deleted, replaced so that
    a crash loses nothing, and removed. Checkpoints are updated; a broker starts on the directory as if it had
    cleaned it itself. Refuses a directory that a running broker has open. The exit code is 1 if something
    failed.

    Examples:

    klog clean --status /var/lib/kafka
    klog clean --policy compact --min-dirty-ratio 0 --dry-run /var/lib/kafka/users-0
    klog clean --policy delete --retention-ms 86400000 --yes /var/lib/kafka/clicks-0 /var/lib/kafka/clicks-1
    """
    from klog.storage.files.log_directory import log_directories_of

    if rules.policy is None and not options.status:
        raise UsageError("--policy is needed", cure="compact, delete or compact,delete; or use --status")
    run = _Run(rules.topic_config(), options)
    changes = not options.status and not options.dry_run
    groups = log_directories_of(map(str, paths))
    with hold(groups, changes=changes, quiet=options.quiet):
        for log_directory, partitions in groups.items():
            run.judge(log_directory, partitions)
        if changes:
            run.execute()
    if run.failed:
        raise typer.Exit(1)


class _Run:
    """Judges all partitions, shows the judgements, and compacts and deletes."""

    def __init__(self, rules: TopicConfig, options: CleanOptions) -> None:
        self._rules = rules
        self._options = options
        self._now_ms = time.time_ns() // 1_000_000
        self._due: list[tuple[OfflineDirectory, str, CleaningPlan]] = []
        self.failed = False

    def judge(self, log_directory: str, partitions: list[str]) -> None:
        from klog.storage.cleaner.offline import OfflineDirectory
        from klog.storage.cleaner.task import CleanerSettings
        from klog.storage.files.directory_lock import holder_of

        shows = self._options.status or self._options.dry_run  # and holds no lock
        settings = CleanerSettings(dedupe_buffer_bytes=self._options.dedupe_buffer_bytes)
        directory = OfflineDirectory(
            log_directory,
            self._rules,
            now_ms=self._now_ms,
            settings=settings,
            in_use=shows and holder_of(log_directory) is not None,
        )
        if not directory.stopped_cleanly and not self._options.quiet:
            what = "there is no clean shutdown marker: if the broker crashed, run `klog recover` first"
            print_note(f"{log_directory}: {what}")
        for partition in partitions:
            plan = self._attempt(partial(directory.judge, partition))
            if plan is None:
                continue
            if plan.changes:
                self._due.append((directory, partition, plan))
            if shows or (not plan.changes and not self._options.quiet):
                self._report(partition, plan, None)

    def execute(self) -> None:
        if not self._due:
            return
        if not confirmed(_question([plan for _, _, plan in self._due]), yes=self._options.yes):
            self.failed = True
            return
        # Compaction reads the dirty part twice.
        total = sum(2 * plan.dirty.cleanable_bytes for _, _, plan in self._due if plan.compacts)
        note_slowness(total, quiet=self._options.quiet)
        with progress("Compacting", total, quiet=self._options.quiet) as advance:
            for directory, partition, plan in self._due:
                outcome = self._attempt(partial(directory.carry_out, partition, plan, advance))
                if outcome is not None:
                    self._report(partition, plan, outcome)

    def _attempt(self, do: Callable[[], T]) -> T | None:
        try:
            return do()
        except KlogError as error:
            self.failed = True
            print_error(error)
            return None

    def _report(self, partition: str, plan: CleaningPlan, outcome: CleanedLog | None) -> None:
        if self._options.as_json:
            word = "status" if self._options.status else "unchanged" if not plan.changes else "planned"
            values = _as_json(partition, plan, outcome, "cleaned" if outcome is not None else word)
            print(json.dumps(values))  # noqa: T201
            return
        lines = [_headline(partition, plan)]
        lines += _plan_lines(plan) if outcome is None else _outcome_lines(plan, outcome)
        print_line(lines[0])
        for line in lines[1:]:
            print_line(f"  {line}")


def _question(due: list[CleaningPlan]) -> str:
    compact = [plan for plan in due if plan.compacts]
    deletable = [segment for plan in due for segment in plan.deletable]
    parts = []
    if compact:
        size = human_bytes(sum(plan.dirty.cleanable_bytes for plan in compact))
        parts.append(f"Compact {count_of(len(compact), 'log')} ({size} dirty)")
    if deletable:
        size = human_bytes(sum(segment.size_bytes for segment in deletable))
        parts.append(f"{'delete' if parts else 'Delete'} {count_of(len(deletable), 'segment')} ({size})")
    return f"{' and '.join(parts)}?"


def _headline(partition: str, plan: CleaningPlan) -> str:
    view, dirty = plan.log.view, plan.dirty
    clean, dirty_size = human_bytes(dirty.clean_bytes), human_bytes(dirty.cleanable_bytes)
    return (
        f"{partition}: {human_bytes(view.size_bytes)} in {count_of(len(view.segments), 'segment')}, "
        f"offsets {view.log_start_offset} to {view.log_end_offset}, "
        f"clean {clean}, dirty {dirty_size} ({dirty.ratio:.1%}) "
        f"from offset {dirty.first_dirty_offset} to {dirty.first_uncleanable_offset}, "
        f"then {human_bytes(_uncleanable_bytes(plan))} held back by {dirty.limit}"
    )


def _uncleanable_bytes(plan: CleaningPlan) -> int:
    limit = plan.dirty.first_uncleanable_offset
    return sum(one.size_bytes for one in plan.log.view.segments if one.base_offset >= limit)


def _plan_lines(plan: CleaningPlan) -> list[str]:
    reason = plan.dirty.reason
    lines = ["to be compacted" if reason is None else f"not compacted: {reason}"]
    if plan.dirty.overdue:
        lines.append(f"max.compaction.lag.ms is exceeded by {plan.dirty.compaction_delay_ms} ms")
    if plan.deletable:
        size = human_bytes(sum(segment.size_bytes for segment in plan.deletable))
        lines.append(f"retention deletes {count_of(len(plan.deletable), 'segment')} ({size})")
    return lines


def _outcome_lines(plan: CleaningPlan, outcome: CleanedLog) -> list[str]:
    lines = []
    if outcome.cleaned is not None:
        stats = outcome.cleaned.stats
        read, written = human_bytes(stats.bytes_read), human_bytes(stats.bytes_written)
        records = f"{count_of(stats.records_read, 'record')} became {stats.records_written}"
        lines.append(
            f"compacted up to offset {outcome.cleaned.end_offset}: {records}, {read} became {written}"
        )
        if stats.invalid_records:
            lines.append(f"{count_of(stats.invalid_records, 'record')} without a key dropped")
        if outcome.cleaned.end_offset < plan.dirty.first_uncleanable_offset:
            lines.append("not all keys fit in the dedupe buffer: run the command again for the rest")
    if outcome.deleted:
        size = human_bytes(sum(segment.size_bytes for segment in outcome.deleted))
        lines.append(f"deleted {count_of(len(outcome.deleted), 'segment')} ({size})")
    return [*lines, f"now {human_bytes(outcome.size_bytes)}"]


def _as_json(partition: str, plan: CleaningPlan, outcome: CleanedLog | None, word: str) -> dict[str, object]:
    view, dirty = plan.log.view, plan.dirty
    values: dict[str, object] = {
        "partitionDirectory": partition,
        "topic": view.partition.topic,
        "partition": view.partition.partition,
        "outcome": word,
        "logStartOffset": view.log_start_offset,
        "logEndOffset": view.log_end_offset,
        "highWatermark": plan.high_watermark,
        "lastStableOffset": view.last_stable_offset,
        "segments": len(view.segments),
        "sizeInBytes": view.size_bytes,
        "cleanBytes": dirty.clean_bytes,
        "cleanableBytes": dirty.cleanable_bytes,
        "uncleanableBytes": _uncleanable_bytes(plan),
        "dirtyRatio": dirty.ratio,
        "firstDirtyOffset": dirty.first_dirty_offset,
        "firstUncleanableOffset": dirty.first_uncleanable_offset,
        "heldBackBy": str(dirty.limit),
        "compactionDelayMs": dirty.compaction_delay_ms,
        "cleanable": dirty.reason is None,
        "reason": None if dirty.reason is None else str(dirty.reason),
        "deletableSegments": [segment.base_offset for segment in plan.deletable],
        "deletableBytes": sum(segment.size_bytes for segment in plan.deletable),
    }
    if outcome is not None:
        values["cleaned"] = None if outcome.cleaned is None else _stats(outcome)
        values["deletedSegments"] = [segment.base_offset for segment in outcome.deleted]
        values["newSizeInBytes"] = outcome.size_bytes
    return values


def _stats(outcome: CleanedLog) -> dict[str, object]:
    if outcome.cleaned is None:
        return {}
    end_offset, stats = outcome.cleaned
    return {
        "endOffset": end_offset,
        "recordsRead": stats.records_read,
        "recordsWritten": stats.records_written,
        "bytesRead": stats.bytes_read,
        "bytesWritten": stats.bytes_written,
        "invalidRecords": stats.invalid_records,
        "bufferUtilization": stats.map_utilization,
    }
