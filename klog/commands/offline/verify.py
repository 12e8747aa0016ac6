"""`klog verify`: checks everything that a broker would trust when it starts, and changes nothing."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import typer

from klog.commands.offline.locks import hold
from klog.commands.offline.options import Paths
from klog.commands.shared.messages import RED, YELLOW, print_line
from klog.commands.shared.option_sets import flag, optional
from klog.commands.shared.terminal import count_of, note_slowness, progress
from klog.formats.compression import DEFAULT_LIMIT_BYTES

if TYPE_CHECKING:
    from klog.storage.repair.problem import Problem


def verify(
    paths: Paths,
    shallow: bool = flag("Check only headers and checksums; do not decode records."),
    max_decompressed_bytes: int = optional(
        DEFAULT_LIMIT_BYTES, "The largest size to which one batch may decompress.", metavar="BYTES", least=1
    ),
    as_json: bool = flag("Print one JSON object per problem.", "--json"),
    quiet: bool = flag("Show no progress, no summary and no notes.", "--quiet", "-q"),
) -> None:
    """Check everything that a broker would trust, and say what Kafka would do about each problem.

    An error can lose data, stop a broker or make it give wrong answers; the exit code is then 1. A note is
    something that Kafka removes or ignores by itself (a leftover .deleted file, a checkpoint entry without a
    partition); it does not change the exit code.

    Examples:

    klog verify /var/lib/kafka
    klog verify --shallow /var/lib/kafka/orders-0
    klog verify --json /disk1/kafka /disk2/kafka
    """
    from klog.storage.files.log_directory import log_directory_of
    from klog.storage.repair.index_reports import RebuildOptions
    from klog.storage.repair.problem import Severity
    from klog.storage.repair.segment_scan import IndexSettings
    from klog.storage.repair.verify import scope_of
    from klog.storage.repair.verify import verify as problems_of

    scope = scope_of(map(str, paths))
    options = RebuildOptions(now_ms=time.time_ns() // 1_000_000, settings=IndexSettings(), check=True)
    errors = notes = 0
    directories = [log_directory_of(target.directory) for target in scope.targets]
    note_slowness(scope.size_bytes, quiet=quiet)
    with (
        hold(directories, changes=False, quiet=quiet),
        progress("Verifying", scope.size_bytes, quiet=quiet) as advance,
    ):
        for problem in problems_of(
            scope,
            options,
            deep=not shallow,
            on_bytes=advance,
            max_decompressed_bytes=max_decompressed_bytes,
        ):
            is_error = problem.severity is Severity.ERROR
            errors += is_error
            notes += not is_error
            if is_error or not quiet:
                _show(problem, as_json=as_json)
    if not as_json and not quiet:
        print_line(
            f"{count_of(len(scope.targets), 'partition')}, {count_of(len(scope.tasks), 'segment')}: "
            f"{count_of(errors, 'error')}, {count_of(notes, 'note')}"
        )
    if errors:
        raise typer.Exit(1)


def _show(problem: Problem, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(to_json(problem)))  # noqa: T201
    else:
        word = str(problem.severity)
        print_line(describe(problem), word=word, style=RED if word == "error" else YELLOW)


def describe(problem: Problem) -> str:
    """A problem as one line for people."""
    place = "" if problem.position is None else f" at byte {problem.position}"
    offset = "" if problem.offset is None else f" (offset {problem.offset})"
    cure = f"; repair: {problem.cure}" if problem.cure else ""
    return f"{problem.severity:5} {problem.file}{place}{offset}: {problem.what}; Kafka {problem.kafka}{cure}"


def to_json(problem: Problem) -> dict[str, object]:
    """A problem as an object for programs, always with the same keys."""
    return {
        "severity": str(problem.severity),
        "file": problem.file,
        "position": problem.position,
        "offset": problem.offset,
        "what": problem.what,
        "kafka": problem.kafka,
        "cure": problem.cure or None,
    }
