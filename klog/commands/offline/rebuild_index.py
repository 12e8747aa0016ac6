"""`klog rebuild-index`: rebuilds `.index`, `.timeindex`, `.txnindex` files and producer snapshots."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

import typer

from klog.commands.offline.locks import hold
from klog.commands.offline.options import IndexIntervalBytes, IndexMaxBytes, Paths
from klog.commands.shared.messages import RED, YELLOW, print_error, print_line
from klog.commands.shared.option_sets import flag
from klog.commands.shared.terminal import count_of, note_slowness, progress
from klog.formats.errors import StorageError, UsageError

if TYPE_CHECKING:
    from klog.storage.files.targets import Target
    from klog.storage.repair.index_reports import IndexReport, SegmentReport, SegmentTask


def rebuild_index(
    paths: Paths,
    check: bool = flag(
        "Report which indexes are missing, broken or valid; write nothing.", "--check", "--dry-run"
    ),
    force: bool = flag("Also rebuild valid indexes."),
    snapshots: bool = flag("Also rebuild producer snapshots."),
    index_interval_bytes: IndexIntervalBytes = 4096,
    index_max_bytes: IndexMaxBytes = 10_485_760,
    as_json: bool = flag("Print one JSON object per file.", "--json"),
    quiet: bool = flag("Show no progress and no valid files.", "--quiet", "-q"),
) -> None:
    """Rebuild the indexes of segments by Kafka's rules; never touches a .log.

    Rebuilds missing and broken indexes: each is written to a temporary file, which is then renamed. Valid
    indexes stay. Missing producer snapshots are reported and written, but they are no problem, since brokers
    keep only the newest. Without --check it refuses a directory that a running broker has open. The exit
    code is 1 if --check finds a missing or broken file, or if a .log is damaged.

    Examples:

    klog rebuild-index --check /var/lib/kafka/orders-0
    klog rebuild-index /var/lib/kafka/orders-0
    klog rebuild-index --force --index-interval-bytes 1024 /var/lib/kafka/orders-0/00000000000000000000.log
    """
    from klog.storage.files.log_directory import log_directory_of
    from klog.storage.files.targets import targets
    from klog.storage.repair.index_rebuild import rebuild, remove_unfinished, tasks_of
    from klog.storage.repair.index_reports import RebuildOptions
    from klog.storage.repair.segment_scan import IndexSettings

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
    directories = [log_directory_of(target.directory) for target in found]
    total_bytes = sum(task.size_bytes for task in tasks)
    note_slowness(total_bytes, quiet=quiet)
    with (
        hold(directories, changes=not check, quiet=quiet),
        progress("Reading segments", total_bytes, quiet=quiet) as advance,
    ):
        for directory in () if check else dict.fromkeys(target.directory for target in found):
            remove_unfinished(directory)
        for report in rebuild(tasks, options):
            out.segment(report)
            advance(report.size_bytes)
        if snapshots:
            from klog.storage.repair.producer_rebuild import rebuild_snapshots

            for directory in dict.fromkeys(target.directory for target in found):
                for snapshot in rebuild_snapshots(directory, options):
                    out.index(snapshot)
    out.summary(len(tasks))
    if out.failed:
        raise typer.Exit(1)


_STYLES: Final = {"broken": RED, "missing": YELLOW}


class _Output:
    """Prints reports as they arrive, and counts them."""

    def __init__(self, as_json: bool, quiet: bool, check: bool) -> None:
        self._as_json = as_json
        self._quiet = quiet
        self._check = check
        self._counts: dict[str, int] = {}
        self._rebuilt = 0
        self._not_valid = 0
        self._damaged = 0

    @property
    def failed(self) -> bool:
        """Whether a damaged, missing or broken file is left."""
        return self._damaged > 0 or self._not_valid > 0

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
            what = f"{place}: {report.problem} (`klog recover` cuts it)"
            print_line(f"{'damaged':8} {report.path}  {what}", word="damaged", style=RED)

    def unreadable(self, error: StorageError) -> None:
        self._damaged += 1
        print_error(error)

    def index(self, report: IndexReport) -> None:
        self._counts[report.status] = self._counts.get(report.status, 0) + 1
        self._rebuilt += report.rebuilt and report.status != "valid"
        self._not_valid += report.status in ("missing", "broken") and not report.rebuilt
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
        word = str(report.status)
        print_line(f"{word:8} {report.path}{said}{done}", word=word, style=_STYLES.get(word, ""))

    def summary(self, segments: int) -> None:
        if self._as_json or self._quiet:
            return
        counts = (
            ", ".join(f"{count} {status}" for status, count in sorted(self._counts.items())) or "no index"
        )
        done = f", {self._rebuilt} rebuilt" if not self._check else ""
        print_line(f"{count_of(segments, 'segment')}: {counts}{done}")


def _print_json(**fields: object) -> None:
    print(json.dumps(fields))  # noqa: T201
