"""How `klog metadata convert` shows its plan: as lines for people, as rows for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from klog.commands.shared.cells import human_bytes, human_span
from klog.commands.shared.changing import Outcome
from klog.commands.shared.messages import print_line, print_lines, print_report
from klog.commands.shared.terminal import count_of

if TYPE_CHECKING:
    from klog.cluster_metadata.consistency import Problem
    from klog.cluster_metadata.conversion_plan import Plan
    from klog.cluster_metadata.log_sizes import LogSize
    from klog.commands.offline.old_segments import Conversion

_LINES_MAX: Final = 20
_WORTH_SAYING_S: Final = 2
_FIELDS: Final = ("kind", "where", "what", "node", "partitions", "segments", "bytes", "ms")


def show(plan: Plan, old: Sequence[Conversion], seconds: float) -> None:
    """Print a plan for people. To write and check it takes about so many seconds."""
    for step in plan.steps:
        print_line(f"write {step.where}: {step.what}, {human_bytes(step.size_bytes)}")
    if seconds >= _WORTH_SAYING_S:
        print_line(f"time: about {human_span(round(seconds * 1000))} to write and check this")
    for each in plan.logs:
        print_line(f"keep {each.directory}: {_logs(each)}, {human_bytes(each.size_bytes)}")
    for each in plan.logs:
        if each.old_segments:
            segments = count_of(each.old_segments, "segment")
            print_line(f"old format: {segments} of {human_bytes(each.old_bytes)} in {each.directory}")
    for needs in old:
        print_line(f"to convert: {needs.directory}: {_needs(needs)}")
    configs = [f"config: {each.name} {each.outcome} in {file}: {each.text}" for file, each in plan.configs]
    print_lines(_first(configs))
    print_lines(_first([f"change: {each}" for each in plan.changes]))
    print_lines(_first([f"cannot go: {each}" for each in plan.losses]))
    for line in _first([f"problem: {each.where}: {each.what}" for each in plan.problems]):
        print_report(line)


def _logs(found: LogSize) -> str:
    partitions, segments = count_of(found.partitions, "partition"), count_of(found.segments, "segment")
    return f"{partitions} of broker {found.node_id} with {segments}"


def _needs(found: Conversion) -> str:
    partitions = count_of(len(found.partitions), "partition")
    needed, free = human_bytes(found.converted_bytes), human_bytes(found.free_bytes)
    span = human_span(round(found.seconds * 1000))
    return f"{partitions}, about {needed} beside the old segments ({free} are free), {span} ({found.command})"


def _first(lines: list[str]) -> list[str]:
    """The lines that people read; programs get all."""
    rest = len(lines) - _LINES_MAX
    return lines if rest <= 0 else [*lines[:_LINES_MAX], f"and {rest:,} more (-o json has all)"]


def outcomes(plan: Plan, old: Sequence[Conversion], seconds: float, *, dry_run: bool) -> Iterator[Outcome]:
    """A plan as rows for programs. To write and check it takes about so many seconds."""
    for step in plan.steps:
        done = "would be written" if dry_run else "written"
        yield _row("write", step.where, step.what, done, node=step.node_id, bytes=step.size_bytes)
    yield _row("time", None, "to write and check the metadata", "estimated", ms=round(seconds * 1000))
    for each in plan.logs:
        yield _row(
            "logs",
            each.directory,
            "stay as they are",
            "kept",
            node=each.node_id,
            partitions=each.partitions,
            segments=each.segments,
            bytes=each.size_bytes,
        )
        if each.old_segments:
            yield _row(
                "old format",
                each.directory,
                "message format 0 or 1",
                "found",
                node=each.node_id,
                partitions=len(each.old_partitions),
                segments=each.old_segments,
                bytes=each.old_bytes,
            )
    for needs in old:
        yield _row(
            "conversion",
            needs.directory,
            needs.command,
            "would be converted" if dry_run else "converted",
            partitions=len(needs.partitions),
            bytes=needs.converted_bytes,
            ms=round(needs.seconds * 1000),
        )
    for file, config in plan.configs:
        yield _row("config", file, f"{config.name}: {config.text}", str(config.outcome))
    for change in plan.changes:
        yield _row("change", None, change, "changed")
    for loss in plan.losses:
        yield _row("loss", None, loss, "lost")
    for problem in plan.problems:
        yield _row("problem", problem.where, problem.what, "found")


def differing(found: Sequence[Problem]) -> Iterator[Outcome]:
    """What is not as the plan says, as rows for programs."""
    for each in found:
        yield _row("difference", each.where, each.what, "differs")


def show_differing(found: Sequence[Problem]) -> None:
    """Print what is not as the plan says for people."""
    for line in _first([f"differs: {each.where}: {each.what}" for each in found]):
        print_report(line)


def _row(kind: str, where: str | None, what: str, done: str, **sizes: int | None) -> Outcome:
    fields = {"kind": kind, "where": where, "what": what, **sizes}
    return Outcome(where or kind, {name: fields.get(name) for name in _FIELDS}, done)
