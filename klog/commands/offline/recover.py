"""`klog recover`: recovers logs as a Kafka broker does after an unclean stop, but keeps what it cuts."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from klog.commands.offline.locks import hold
from klog.commands.offline.options import (
    DryRun,
    IndexIntervalBytes,
    IndexMaxBytes,
    JsonPerPartition,
    PartitionPaths,
    QuietUnlessChanged,
    Yes,
)
from klog.commands.offline.outputs import check_output_directory
from klog.commands.shared.messages import RED, YELLOW, print_error, print_line
from klog.commands.shared.option_sets import flag, optional
from klog.commands.shared.terminal import confirmed, count_of, note_slowness, progress
from klog.formats.errors import KlogError

if TYPE_CHECKING:
    from klog.storage.repair.recovery_plan import RecoveryPlan, RecoverySettings, Step
    from klog.storage.repair.recovery_run import RecoveryResult

    _Planned = tuple[RecoveryPlan, RecoverySettings]


@dataclass(frozen=True, slots=True)
class RecoveryOptions:
    """How to recover, and what to print."""

    dry_run: DryRun = False
    yes: Yes = False
    quarantine: Path | None = optional(
        None, "The directory for what is cut [default: klog-quarantine beside the log directory]."
    )
    from_recovery_point: bool = flag(
        "Do not check records below the offsets in recovery-point-offset-checkpoint."
    )
    index_interval_bytes: IndexIntervalBytes = 4096
    index_max_bytes: IndexMaxBytes = 10_485_760
    as_json: JsonPerPartition = False
    quiet: QuietUnlessChanged = False


def recover(
    paths: PartitionPaths,
    options: RecoveryOptions,
) -> None:
    """Recover partitions as Kafka would after an unclean stop, but keep everything that is cut.

    Cuts each log at its first bad batch, moves later segments away, and rebuilds indexes, producer snapshots
    and leader epochs. Everything that is cut goes into a quarantine directory, with a manifest that says how
    to put it back. Refuses a directory that a running broker has open. The exit code is 1 if something
    failed.

    Examples:

    klog recover --dry-run /var/lib/kafka
    klog recover --yes /var/lib/kafka/orders-0
    klog recover --quarantine /backup/cut /var/lib/kafka
    """
    from klog.storage.files.log_directory import log_directories_of

    if options.quarantine is not None:
        check_output_directory(str(options.quarantine), map(str, paths))
    recovery = _Recovery(options)
    groups = log_directories_of(map(str, paths))
    with hold(groups, changes=not options.dry_run, quiet=options.quiet):
        total_bytes = sum(_bytes_of(partitions) for partitions in groups.values())
        note_slowness(total_bytes, quiet=options.quiet)
        for log_directory, partitions in groups.items():
            recovery.execute(log_directory, recovery.plan(log_directory, partitions))
    recovery.summarize()
    if recovery.failed:
        raise typer.Exit(1)


def _bytes_of(partitions: list[str]) -> int:
    """How many bytes to read; a directory that cannot be listed counts as empty, and planning reports it."""
    from klog.storage.files.partition_files import list_partition

    total = 0
    for path in partitions:
        with suppress(KlogError):
            sizes = list_partition(path).sizes
            total += sum(size for name, size in sizes.items() if name.endswith(".log"))
    return total


class _Recovery:
    """Makes plans, shows them, asks, and carries them out."""

    def __init__(self, options: RecoveryOptions) -> None:
        self.failed = False
        self._options = options
        self._recovered: list[RecoveryPlan] = []

    def plan(self, log_directory: str, partitions: list[str]) -> list[_Planned]:
        """Plan each partition; reports and leaves out those that cannot be planned."""
        from klog.storage.files.checkpoint_files import Checkpoints
        from klog.storage.repair.recovery import plan_recovery
        from klog.storage.repair.recovery_plan import RecoverySettings
        from klog.storage.repair.segment_scan import IndexSettings

        index = IndexSettings(self._options.index_interval_bytes, self._options.index_max_bytes)
        checkpoints = Checkpoints(log_directory)
        now_ms = time.time_ns() // 1_000_000
        planned: list[_Planned] = []
        with progress("Reading segments", _bytes_of(partitions), quiet=self._options.quiet) as advance:
            for partition in partitions:
                settings = RecoverySettings(
                    now_ms,
                    index,
                    recovery_point=checkpoints.recovery_point(partition)
                    if self._options.from_recovery_point
                    else 0,
                    log_start_offset=checkpoints.log_start(partition),
                    keeps_valid=True,
                )
                try:
                    planned.append((plan_recovery(partition, settings), settings))
                except KlogError as error:
                    self._report_error(error)
                advance(_bytes_of([partition]))
        return planned

    def execute(self, log_directory: str, planned: list[_Planned]) -> None:
        """Show the plans of one log directory; carry them out unless it is a dry run or the answer is no."""
        from klog.storage.files.quarantine import default_root, require_outside
        from klog.storage.repair.recovery_run import run_recovery

        root = (
            default_root(log_directory)
            if self._options.quarantine is None
            else os.path.abspath(self._options.quarantine)
        )
        plans = [plan for plan, _ in planned]
        if not self._options.as_json:
            self._show_all(plans)
        if self._options.dry_run:
            for plan in plans:
                self._report(plan, None, "planned")
            return
        if any(plan.steps for plan in plans):
            require_outside(root, log_directory)
        cutting = [plan for plan in plans if plan.takes_away]
        if cutting and not confirmed(_question(cutting, root), yes=self._options.yes):
            self.failed = True
            return
        done = []
        for plan, settings in planned:
            try:
                self._report(plan, run_recovery(plan, settings, root), "recovered")
                done.append(plan)
                self._recovered.append(plan)
            except KlogError as error:
                self._report_error(error)
        self._lower_recovery_points(log_directory, done)

    def summarize(self) -> None:
        """Print what was repaired in all partitions."""
        changed = [plan for plan in self._recovered if plan.steps]
        if changed and not self._options.as_json:
            print_line(f"repaired {count_of(len(changed), 'partition')}: {_repairs(changed)}")

    def _report_error(self, error: KlogError) -> None:
        self.failed = True
        print_error(error)

    def _lower_recovery_points(self, log_directory: str, plans: list[RecoveryPlan]) -> None:
        """Lower recovery points above their log's end: a broker would not check later records below them."""
        from klog.formats.names import FileKind
        from klog.storage.files.checkpoint_files import Checkpoints
        from klog.storage.files.files import write_atomically
        from klog.storage.files.kafka_files import partition_of

        ends = {partition_of(plan.path): plan.log_end_offset for plan in plans}
        known = {partition: end for partition, end in ends.items() if partition is not None}
        data = Checkpoints(log_directory).lowered_recovery_points(known)
        if data is not None:
            write_atomically(os.path.join(log_directory, FileKind.RECOVERY_POINT_CHECKPOINT), data)

    def _show_all(self, plans: list[RecoveryPlan]) -> None:
        shown = [plan for plan in plans if plan.steps or plan.findings]
        for plan in shown:
            self._show(plan)
        if not self._options.quiet:
            valid = len(plans) - len(shown)
            print_line(f"{count_of(len(plans), 'partition')}: {valid} valid")

    def _show(self, plan: RecoveryPlan) -> None:
        refusal = plan.kafka_refuses
        state, segments = count_of(len(plan.steps), "change"), count_of(plan.segments, "segment")
        print_line(
            f"{plan.path}: {state}, {segments}, offsets {plan.log_start_offset} to {plan.log_end_offset}"
        )
        if refusal is not None:
            print_line(f"  Kafka {refusal.kafka}", word="  Kafka", style=RED)
        for finding in plan.findings:
            place = "" if finding.position_bytes is None else f" at byte {finding.position_bytes}"
            print_line(f"  found   {finding.name}{place}: {finding.what}", word="  found", style=YELLOW)
        for step in plan.steps:
            print_line(f"  {describe(step)}")

    def _report(self, plan: RecoveryPlan, result: RecoveryResult | None, outcome: str) -> None:
        if self._options.as_json:
            print(json.dumps(_as_json(plan, result, outcome)))  # noqa: T201
        elif result is not None and result.quarantine is not None:
            print_line(f"{plan.path}: kept {count_of(len(result.kept), 'file')} in {result.quarantine}")


def _repairs(plans: list[RecoveryPlan]) -> str:
    """What the steps of all plans have done, in one line."""
    from klog.storage.repair.recovery_plan import Cut, SetAside, SplitOff, SwapIn, Trim

    done = {Cut: "cut", Trim: "trimmed", SplitOff: "split off", SetAside: "moved aside", SwapIn: "renamed"}
    steps = [step for plan in plans for step in plan.steps]
    counts = Counter(done.get(type(step), "rebuilt") for step in steps)
    cut_bytes = sum(step.size_bytes - step.valid_bytes for step in steps if isinstance(step, Cut))
    parts = [
        f"{count_of(counts[verb], 'file')} {verb}" for verb in (*done.values(), "rebuilt") if counts[verb]
    ]
    return ", ".join(parts) + (f"; {cut_bytes} bytes are no longer in the log" if cut_bytes else "")


def _question(plans: list[RecoveryPlan], root: str) -> str:
    from klog.storage.repair.recovery_plan import Cut, SetAside

    steps = [step for plan in plans for step in plan.steps]
    cut_bytes = sum(step.size_bytes - step.valid_bytes for step in steps if isinstance(step, Cut))
    aside = sum(isinstance(step, SetAside) for step in steps)
    cut = f"Cut {count_of(cut_bytes, 'byte')} and move {count_of(aside, 'file')}"
    return f"{cut} to {root}?"


def describe(step: Step) -> str:
    """A step as one line for people."""
    from klog.storage.repair.recovery_plan import Cut, SetAside, SplitOff, SwapIn, Trim, WriteIndexes

    if isinstance(step, SetAside):
        return f"aside   {step.name} ({step.why})"
    if isinstance(step, SwapIn):
        return f"rename  {step.name} -> {step.target}"
    if isinstance(step, Cut):
        cut_bytes = step.size_bytes - step.valid_bytes
        return f"cut     {step.name} at byte {step.valid_bytes}, {count_of(cut_bytes, 'byte')} removed"
    if isinstance(step, Trim):
        zeros = step.size_bytes - step.valid_bytes
        return f"trim    {step.name} at byte {step.valid_bytes}, {count_of(zeros, 'zero')} removed"
    if isinstance(step, SplitOff):
        return f"split   {step.source}, bytes {step.start_bytes} to {step.end_bytes} -> {step.name}"
    if isinstance(step, WriteIndexes):
        return f"rebuild indexes of segment {step.base_offset}"
    return f"rebuild {step.name} ({step.why})"


def _as_json(plan: RecoveryPlan, result: RecoveryResult | None, outcome: str) -> dict[str, object]:
    from klog.storage.repair.recovery_plan import Cut, SetAside, SplitOff, SwapIn, Trim, WriteIndexes

    steps: list[dict[str, object]] = []
    for step in plan.steps:
        if isinstance(step, WriteIndexes):
            steps.append({"do": "rebuildIndexes", "baseOffset": step.base_offset})
        elif isinstance(step, Cut | Trim):
            do = "cut" if isinstance(step, Cut) else "trim"
            steps.append({"do": do, "file": step.name, "position": step.valid_bytes, "size": step.size_bytes})
        elif isinstance(step, SplitOff):
            start, end = step.start_bytes, step.end_bytes
            steps.append({"do": "split", "file": step.source, "position": start, "end": end, "to": step.name})
        elif isinstance(step, SwapIn):
            steps.append({"do": "rename", "file": step.name, "to": step.target})
        else:
            do = "setAside" if isinstance(step, SetAside) else "rebuild"
            steps.append({"do": do, "file": step.name, "why": step.why})
    return {
        "partitionDirectory": plan.path,
        "outcome": outcome,
        "logStartOffset": plan.log_start_offset,
        "logEndOffset": plan.log_end_offset,
        "segments": plan.segments,
        "kafkaRefusesToStart": plan.kafka_refuses is not None,
        "findings": [
            {"file": f.name, "position": f.position_bytes, "what": f.what, "kafka": f.kafka}
            for f in plan.findings
        ],
        "steps": steps,
        "quarantine": None if result is None else result.quarantine,
    }
