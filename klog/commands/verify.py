"""`klog verify`: reads everything that a broker would trust at its start, and changes nothing."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from klog.commands._terminal import progress
from klog.formats.compression import DEFAULT_LIMIT_BYTES

if TYPE_CHECKING:
    from klog.storage.problem import Problem


def verify(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...", readable=False, help="Segments, partition directories or log directories."
        ),
    ],
    shallow: Annotated[
        bool, typer.Option("--shallow", help="Headers and checksums only; do not decode records.")
    ] = False,
    max_decompressed_bytes: Annotated[
        int, typer.Option(min=1, metavar="BYTES", help="What one batch may decompress to.")
    ] = DEFAULT_LIMIT_BYTES,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a problem on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary, no notes.")] = False,
) -> None:
    """Check everything that a broker would trust, and say what Kafka would do about each problem.

    An error costs data, service or truth, and makes the exit code 1. A note is something that Kafka tidies
    up or ignores by itself (a leftover .deleted file, a checkpoint entry without a partition); it fails
    nothing.

    Examples:

    klog verify /var/lib/kafka

    klog verify --shallow /var/lib/kafka/orders-0

    klog verify --json /disk1/kafka /disk2/kafka
    """
    from klog.storage.index_rebuild import RebuildOptions
    from klog.storage.problem import Severity
    from klog.storage.segment_scan import IndexSettings
    from klog.storage.verify import scope_of
    from klog.storage.verify import verify as problems_of

    scope = scope_of(map(str, paths))
    options = RebuildOptions(now_ms=time.time_ns() // 1_000_000, settings=IndexSettings(), check=True)
    errors = notes = 0
    with progress("Verifying", scope.size_bytes, quiet=quiet) as advance:
        for problem in problems_of(
            scope,
            options,
            deep=not shallow,
            on_segment=advance,
            max_decompressed_bytes=max_decompressed_bytes,
        ):
            is_error = problem.severity is Severity.ERROR
            errors += is_error
            notes += not is_error
            if is_error or not quiet:
                print(json.dumps(to_json(problem)) if as_json else describe(problem))  # noqa: T201
    if not as_json and not quiet:
        partitions = len(scope.targets)
        print(  # noqa: T201
            f"{partitions} partition{'' if partitions == 1 else 's'}, "
            f"{len(scope.tasks)} segment{'' if len(scope.tasks) == 1 else 's'}: "
            f"{errors} error{'' if errors == 1 else 's'}, {notes} note{'' if notes == 1 else 's'}"
        )
    if errors:
        raise typer.Exit(1)


def describe(problem: Problem) -> str:
    """One line for people."""
    place = "" if problem.position is None else f" at byte {problem.position}"
    offset = "" if problem.offset is None else f" (offset {problem.offset})"
    cure = f"; mend: {problem.cure}" if problem.cure else ""
    return f"{problem.severity:5} {problem.file}{place}{offset}: {problem.what}; Kafka {problem.kafka}{cure}"


def to_json(problem: Problem) -> dict[str, object]:
    """One object for programs; the keys are always there."""
    return {
        "severity": str(problem.severity),
        "file": problem.file,
        "position": problem.position,
        "offset": problem.offset,
        "what": problem.what,
        "kafka": problem.kafka,
        "cure": problem.cure or None,
    }
