"""`klog convert`: converts segments to another message format and codec, offline."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from klog.commands.offline.locks import hold
from klog.commands.offline.options import DryRun, JsonPerPartition, PartitionPaths, QuietUnlessChanged
from klog.commands.shared.cells import human_bytes
from klog.commands.shared.messages import print_error, print_line
from klog.commands.shared.option_sets import flag, optional, valued
from klog.commands.shared.terminal import confirmed, count_of, note_slowness, progress
from klog.formats.errors import KlogError, UsageError
from klog.jobs.cores import available_cores

if TYPE_CHECKING:
    from klog.convert.finishing import PartitionOutcome
    from klog.convert.options import ConvertOptions
    from klog.convert.output_directory import OutputDirectory
    from klog.convert.partition_plan import PartitionPlan
    from klog.convert.sampling import Estimate
    from klog.replicas.stages import Runner

StartRunner = Callable[[], AbstractContextManager["Runner"]]


@dataclass(frozen=True, slots=True)
class Target:
    """What the segments become."""

    compression: str = optional(
        "producer",
        "The codec: none, gzip, snappy, lz4, zstd, or producer to keep that of each batch.",
        "--compression",
        "-c",
        metavar="CODEC",
    )
    level: int | None = optional(
        None, "The codec's level: gzip 1 to 9, lz4 1 to 16, zstd up to 22 [default: the codec's]."
    )
    batch_bytes: int = optional(
        131_072,
        "Join small batches up to so many bytes of uncompressed records; 0 joins none.",
        metavar="BYTES",
        least=0,
    )
    max_message_bytes: int = optional(
        1_048_588, "The topics' max.message.bytes; no joined batch is larger.", metavar="BYTES", least=1024
    )
    segment_bytes: int | None = valued(
        "BYTES", "Merge and split segments to this size [default: segments begin where they began]."
    )
    index_interval_bytes: int = optional(4096, "The topics' index.interval.bytes.", metavar="BYTES", least=0)
    converts_active: bool = flag(
        "Convert the last segment too, and what is above the high watermark: only if all replicas are.",
        "--all",
    )

    def options(self) -> ConvertOptions:
        """The options of the conversion. Raises UsageError."""
        from klog.convert.options import ConvertOptions, codec_of, require_valid

        options = ConvertOptions(
            codec=codec_of(self.compression),
            level=self.level,
            batch_bytes=self.batch_bytes,
            max_message_bytes=self.max_message_bytes,
            segment_bytes=self.segment_bytes,
            index_interval_bytes=self.index_interval_bytes,
            converts_active=self.converts_active,
        )
        require_valid(options)
        return options


@dataclass(frozen=True, slots=True)
class RunningOptions:
    """How to convert, and what to print."""

    output: Path | None = valued(
        "DIR",
        "Write a converted copy of the log directory here; the originals stay as they are.",
        "--output",
        "-o",
    )
    verify: bool = flag("Compare every record with the original before segments are replaced.")
    dry_run: DryRun = False
    yes: bool = flag("Replace segments without asking.", "--yes", "-y")
    jobs: int | None = optional(None, "Processes [default: the number of cores].", "--jobs", "-j", least=1)
    as_json: JsonPerPartition = False
    quiet: QuietUnlessChanged = False


def convert(
    context: typer.Context,
    paths: PartitionPaths,
    target: Target,
    running: RunningOptions,
) -> None:
    """Convert segments to message format 2 and another codec, offline, and join small batches.

    Offsets, timestamps, headers, producers, sequences, transactions and leader epochs stay. The last segment
    of a partition stays as it is unless --all is given, and so does what is above the high watermark. New
    segments are written beside the old ones, which are replaced at the end; if the command is killed, run it
    again, and it continues. Refuses a directory that a running broker has open. The exit code is 1 if
    something failed.

    Examples:

    klog convert --compression zstd --dry-run /var/lib/kafka
    klog convert --compression zstd --level 6 --verify --yes /var/lib/kafka/clicks-0 /var/lib/kafka/clicks-1
    klog convert --compression lz4 --output /backup/converted /backup/kafka
    """
    from klog.storage.files.log_directory import log_directories_of

    options = target.options()
    groups = log_directories_of(map(str, paths))
    if running.output is not None and len(groups) > 1:
        raise UsageError(
            "--output takes the partitions of one log directory",
            cure="convert each log directory into its own output",
        )
    run = _Run(options, running, context.obj)
    with _held(groups, running):
        for log_directory, partitions in groups.items():
            run.plan(log_directory, partitions)
        run.execute()
    if run.failed:
        raise typer.Exit(1)


@contextmanager
def _held(log_directories: Iterable[str], running: RunningOptions) -> Iterator[None]:
    """Hold the locks of directories that are changed. Those that are copied must not be in use."""
    from klog.storage.files.directory_lock import locked

    changes = not running.dry_run and running.output is None
    with ExitStack() as stack:
        if running.output is not None and not running.dry_run:
            for directory in log_directories:
                stack.enter_context(locked(directory, only_reading=True))
        else:
            stack.enter_context(hold(log_directories, changes=changes, quiet=running.quiet))
        yield


class _Run:
    """Plans all partitions, shows the plans or carries them out."""

    def __init__(
        self, options: ConvertOptions, running: RunningOptions, start_runner: StartRunner | None
    ) -> None:
        self._options = options
        self._running = running
        self._start_runner = start_runner
        self._plans: list[PartitionPlan] = []
        self._output: OutputDirectory | None = None
        self._tasks = 0
        self.failed = False

    def plan(self, log_directory: str, partitions: list[str]) -> None:
        from klog.convert.finishing import settle
        from klog.convert.output_directory import OutputDirectory
        from klog.convert.planning import high_watermarks, plan_partition
        from klog.storage.files.kafka_files import partition_of

        running = self._running
        if running.output is not None and not running.dry_run:
            self._output = OutputDirectory(str(running.output), log_directory, self._options)
            self._output.begin()
        watermarks = high_watermarks(log_directory)
        for directory in partitions:
            if self._output is not None and os.path.basename(directory) in self._output.done:
                continue
            target = directory if self._output is None else self._output.target(directory)
            name = partition_of(directory)
            watermark = None if watermarks is None or name is None else watermarks.get(name, 0)
            try:
                if not running.dry_run:
                    settle(target)
                plan = plan_partition(
                    directory,
                    target,
                    self._options,
                    high_watermark=watermark,
                    first_number=self._tasks,
                )
            except KlogError as error:
                self._fail(error)
                continue
            self._plans.append(plan)
            self._tasks += len(plan.tasks)

    def execute(self) -> None:
        running = self._running
        for plan in self._plans:
            if running.dry_run:
                self._estimate(plan)
            elif not plan.tasks and self._output is None and not running.quiet:
                self._report(plan, _values(plan, "unchanged"), f"nothing to convert: {plan.reason}")
        if running.dry_run:
            return
        plans = [plan for plan in self._plans if plan.tasks or self._output is not None]
        if plans and (self._output is not None or self._agreed(plans)):
            self._convert(plans)
        if self._output is not None and not self.failed:
            self._output.finish()

    def _agreed(self, plans: list[PartitionPlan]) -> bool:
        size = human_bytes(sum(plan.convertible_bytes for plan in plans))
        segments = count_of(sum(len(plan.replaces) for plan in plans), "segment")
        agreed = confirmed(f"Replace {segments} ({size}) by converted ones?", yes=self._running.yes)
        self.failed = self.failed or not agreed
        return agreed

    def _convert(self, plans: list[PartitionPlan]) -> None:
        from klog.convert.run_convert import pending_bytes, run_convert

        running = self._running
        total = pending_bytes(plans, verifies=running.verify)
        note_slowness(total, quiet=running.quiet)
        with self._runner() as runner, progress("Converting", total, quiet=running.quiet) as advance:
            for plan, outcome in run_convert(plans, runner, verifies=running.verify, on_bytes=advance):
                if isinstance(outcome, KlogError):
                    self._fail(outcome)
                    continue
                if self._output is not None:
                    self._output.commit(plan.directory)
                self._report_outcome(outcome)

    @contextmanager
    def _runner(self) -> Iterator[Runner]:
        from klog.convert.run_convert import pool

        if self._start_runner is None:
            yield pool(self._running.jobs or available_cores())
            return
        with self._start_runner() as runner:
            yield runner

    def _fail(self, error: KlogError) -> None:
        self.failed = True
        print_error(error)

    def _estimate(self, plan: PartitionPlan) -> None:
        from klog.convert.sampling import estimate

        if not plan.tasks:
            self._report(plan, _values(plan, "unchanged"), f"nothing to convert: {plan.reason}")
            return
        try:
            found = estimate(plan)
        except KlogError as error:
            self._fail(error)
            return
        before, after = plan.convertible_bytes, found.of(plan.convertible_bytes)
        values = _values(plan, "planned") | _estimate_values(found, after)
        saved = "" if not before else f" ({_change(before, after)})"
        self._report(
            plan,
            values,
            f"{count_of(len(plan.replaces), 'segment')} of {human_bytes(before)} would become about "
            f"{human_bytes(after)}{saved}; {human_bytes(found.sampled_bytes)} sampled",
        )

    def _report_outcome(self, outcome: PartitionOutcome) -> None:
        plan = outcome.plan
        values = _values(plan, "converted" if outcome.changed else "unchanged") | {
            "newSegments": [segment.base_offset for segment in outcome.segments],
            "convertedBytes": outcome.new_bytes,
            "batchesRead": outcome.batches_read,
            "batchesWritten": outcome.batches_written,
            "recordsVerified": outcome.records_compared,
        }
        if not outcome.changed:
            self._report(plan, values, "the segments are already as they would become")
            return
        if not plan.tasks:
            self._report(plan, values, f"copied: {plan.reason}")
            return
        before = plan.convertible_bytes
        verified = outcome.records_compared
        text = (
            f"{count_of(len(plan.replaces), 'segment')} of {human_bytes(before)} became "
            f"{count_of(len(outcome.segments), 'segment')} of {human_bytes(outcome.new_bytes)}"
            f" ({_change(before, outcome.new_bytes)}), "
            f"{outcome.batches_read} batches became {outcome.batches_written}"
        )
        self._report(plan, values, text if verified is None else f"{text}; {verified} records verified")

    def _report(self, plan: PartitionPlan, values: dict[str, object], text: str) -> None:
        if self._running.as_json:
            print(json.dumps(values))  # noqa: T201
        else:
            print_line(f"{plan.directory}: {text}")


def _change(before: int, after: int) -> str:
    return f"{(after - before) / before:+.1%}"


def _values(plan: PartitionPlan, outcome: str) -> dict[str, object]:
    return {
        "partitionDirectory": plan.directory,
        "topic": plan.partition.topic,
        "partition": plan.partition.partition,
        "outcome": outcome,
        "reason": plan.reason,
        "sizeInBytes": plan.size_bytes,
        "convertibleBytes": plan.convertible_bytes,
        "replacedSegments": list(plan.replaces),
        "keptSegments": list(plan.kept),
        "target": plan.target,
    }


def _estimate_values(found: Estimate, after: int) -> dict[str, object]:
    return {
        "sampledBytes": found.sampled_bytes,
        "sampledBytesConverted": found.converted_bytes,
        "sampledBatches": found.batches_read,
        "sampledBatchesConverted": found.batches_written,
        "estimatedBytes": after,
    }
