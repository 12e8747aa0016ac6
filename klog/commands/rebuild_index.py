"""`klog rebuild-index`: `.index`, `.timeindex`, `.txnindex` and producer snapshots made anew."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from klog.commands._index_options import IndexIntervalBytes, IndexMaxBytes
from klog.commands._terminal import progress
from klog.formats.errors import StorageError, UsageError

if TYPE_CHECKING:
    from klog.storage.index_rebuild import IndexReport, SegmentReport, SegmentTask
    from klog.storage.targets import Target


def rebuild_index(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...", readable=False, help="Segments, partition directories or log directories."
        ),
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; say which are missing, broken or valid.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Rebuild valid ones too.")] = False,
    snapshots: Annotated[bool, typer.Option("--snapshots", help="Include producer snapshots.")] = False,
    index_interval_bytes: IndexIntervalBytes = 4096,
    index_max_bytes: IndexMaxBytes = 10_485_760,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a file on stdout.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress, no list of valid files.")
    ] = False,
) -> None:
    """Rebuild the indexes of segments by Kafka's rules; never touches a .log.

    Missing and broken ones are made anew, each beside its place and then renamed into it; valid ones stay.
    Producer snapshots that are absent are told and made, but are no problem: brokers keep only the newest.
    Exit code 1 when --check finds something missing or broken, or when a .log is damaged itself.

    Examples:

    klog rebuild-index --check /var/lib/kafka/orders-0

    klog rebuild-index /var/lib/kafka/orders-0

    klog rebuild-index --force --index-interval-bytes 1024 /var/lib/kafka/orders-0/00000000000000000000.log
    """
    from klog.storage.index_rebuild import RebuildOptions, rebuild, rebuild_snapshots, tasks_of
    from klog.storage.segment_scan import IndexSettings
    from klog.storage.targets import targets

    if check and force:
        raise UsageError("--check and --force exclude each other")
    options = RebuildOptions(
        now_ms=time.time_ns() // 1_000_000,
        settings=IndexSettings(index_interval_bytes, index_max_bytes),
        check=check,
        force=force,
        snapshots=snapshots,
    )
    out = _Output(as_json, quiet, check)
    found: list[Target] = []
    tasks: list[SegmentTask] = []
    for target in targets(map(str, paths)):
        try:
            tasks += tasks_of(target.directory, target.base_offset)
        except StorageError as error:
            out.unreadable(error)
        else:
            found.append(target)
    with progress("Reading segments", sum(task.size_bytes for task in tasks), quiet=quiet) as advance:
        for report in rebuild(tasks, options):
            out.segment(report)
            advance(report.size_bytes)
        if snapshots:
            for directory in dict.fromkeys(target.directory for target in found):
                for snapshot in rebuild_snapshots(directory, options):
                    out.index(snapshot)
    out.summary(len(tasks))
    if out.failed:
        raise typer.Exit(1)


class _Output:
    """Renders reports as they come, and counts them."""

    def __init__(self, as_json: bool, quiet: bool, check: bool) -> None:
        self._as_json = as_json
        self._quiet = quiet
        self._check = check
        self._counts: dict[str, int] = {}
        self._rebuilt = 0
        self._unsound = 0
        self._damaged = 0

    @property
    def failed(self) -> bool:
        """Whether something is left that is not as it should be."""
        return self._damaged > 0 or self._unsound > 0

    def segment(self, report: SegmentReport) -> None:
        for index in report.indexes:
            self.index(index)
        if report.unreadable is not None:
            self.unreadable(report.unreadable)
        if report.problem is None:
            return
        self._damaged += 1
        if self._as_json:
            _print_json(
                file=report.path, status="damaged", what=report.problem, position=report.problem_bytes
            )
        else:
            place = f"byte {report.problem_bytes}"
            print(f"{'damaged':8} {report.path}  {place}: {report.problem} (`klog recover` cuts it)")  # noqa: T201

    def unreadable(self, error: StorageError) -> None:
        self._damaged += 1
        print(f"klog: {error}", file=sys.stderr)  # noqa: T201

    def index(self, report: IndexReport) -> None:
        self._counts[report.status] = self._counts.get(report.status, 0) + 1
        self._rebuilt += report.rebuilt and report.status != "valid"
        self._unsound += report.status in ("missing", "broken") and not report.rebuilt
        if self._as_json:
            _print_json(
                file=report.path,
                status=str(report.status),
                what=report.what,
                position=report.position_bytes,
                rebuilt=report.rebuilt,
            )
            return
        if report.status == "valid" and not report.rebuilt and (self._quiet or not self._check):
            return
        place = "" if report.position_bytes is None else f"byte {report.position_bytes}: "
        said = "" if report.what is None or report.status == "missing" else f"  {place}{report.what}"
        done = "  -> rebuilt" if report.rebuilt else ""
        print(f"{report.status:8} {report.path}{said}{done}")  # noqa: T201

    def summary(self, segments: int) -> None:
        if self._as_json or self._quiet:
            return
        counts = (
            ", ".join(f"{count} {status}" for status, count in sorted(self._counts.items())) or "no index"
        )
        done = f", {self._rebuilt} rebuilt" if not self._check else ""
        plural = "" if segments == 1 else "s"
        print(f"{segments} segment{plural}: {counts}{done}")  # noqa: T201


def _print_json(**fields: object) -> None:
    print(json.dumps(fields))  # noqa: T201
