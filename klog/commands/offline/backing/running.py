"""The options of `klog backup run`, and runs one after another."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Self

from klog.commands.offline.backing.rows import problem_lines, result_row, result_text
from klog.commands.offline.zookeeper_access import ZooKeeperConfig
from klog.commands.shared.arguments import parse_span
from klog.commands.shared.exit_codes import WRONG_USAGE, exit_code
from klog.commands.shared.interrupts import Interrupts
from klog.commands.shared.messages import print_error, print_line, print_note
from klog.commands.shared.option_sets import flag, optional, valued
from klog.commands.shared.output import OutputOptions
from klog.commands.shared.terminal import progress
from klog.formats.errors import KlogError, UsageError

if TYPE_CHECKING:
    from klog.backup.catalogue import Summariser
    from klog.backup.model import Problem
    from klog.backup.repository import Repository
    from klog.backup.run import Result, RunOptions
    from klog.backup.sources import BackupSource
    from klog.backup.verify import Finding
    from klog.commands.offline.backing.metrics import BackupMetrics

_PANEL = "Running"


@dataclass(frozen=True, slots=True)
class RunningOptions:
    """How to run."""

    topic: list[str] | None = valued(
        "PATTERN", "Only topics that match as a whole (a regular expression; repeatable).", "--topic", "-t"
    )
    every: str | None = valued(
        "SPAN", "Run again and again; a run begins so long after the one before.", panel=_PANEL
    )
    compression: str = optional(
        "zstd",
        "zstd, gzip or none, for batches that producers did not compress; of a new repository.",
        panel=_PANEL,
    )
    throttle: str | None = valued("BYTES", "Read at most so many bytes a second, such as 50m.", panel=_PANEL)
    jobs: int | None = optional(
        None,
        "Copy so many partitions at a time. [default: 1, of a cluster 4]",
        "--jobs",
        "-j",
        panel=_PANEL,
        least=1,
    )
    log_end: bool = flag(
        "Take records above the high watermark of a running broker, too. A leader that fails may lose them.",
        panel=_PANEL,
    )
    full: bool = flag(
        "Check all objects of the repository first, and store those anew that are damaged or missing, if"
        " SOURCE still has them.",
        panel=_PANEL,
    )
    metadata: str | None = valued(
        "SOURCE",
        "Keep the cluster's metadata with the backup: kafka://HOST:PORT, or any source that klog metadata"
        " show reads.",
    )
    zookeeper_config: ZooKeeperConfig = None
    secrets: bool = flag("Keep passwords and credentials of the metadata, too.")
    metrics_file: Path | None = valued(
        "FILE",
        "Write metrics for Prometheus after each run, for node_exporter's textfile directory.",
        panel=_PANEL,
    )
    metrics_port: int | None = optional(
        None, "With --every: serve them at http://127.0.0.1:PORT/metrics.", panel=_PANEL, least=0, most=65535
    )
    quiet: bool = flag("Show no progress and no summary.", "--quiet", "-q")

    def patterns(self) -> tuple[str, ...]:
        """The regular expressions of topics to back up; none: all topics. Raises UsageError."""
        from klog.admin.topic_patterns import include_list

        return tuple(include_list(text).pattern for text in self.topic or ())


@dataclass(frozen=True, slots=True)
class Origin:
    """What is backed up: `open` gives the source of a run, `jobs` is how many partitions are usual.

    `metadata` gives the cluster's metadata in its JSON form; it is None if that is not asked for. `find`
    raises `KlogError` if the source is not there.
    """

    open: Callable[[], AbstractContextManager[BackupSource]]
    jobs: int
    metadata: Callable[[], bytes] | None
    find: Callable[[], object]


@contextmanager
def serving_metrics(running: RunningOptions) -> Iterator[BackupMetrics]:
    """The metrics of runs, which are served meanwhile if that is asked for. Raises `KlogError`."""
    from klog.commands.offline.backing.metrics import BackupMetrics

    metrics = BackupMetrics(running.metrics_file)
    if running.metrics_port is None:
        yield metrics
        return
    if running.every is None:
        raise UsageError("--metrics-port is for --every", cure="--metrics-file keeps those of a single run")
    from klog.server.metrics.metrics_server import MetricsServer

    server = MetricsServer(running.metrics_port, metrics.text)
    try:
        yield metrics
    finally:
        server.stop()


def run_all(
    repository: Repository,
    origin: Origin,
    running: RunningOptions,
    output: OutputOptions,
    metrics: BackupMetrics,
    interrupts: Interrupts,
) -> bool:
    """Run once, or until it is interrupted. Whether the last run was clean."""
    from klog.backup.catalogue import Summariser

    every_ms = None if running.every is None else parse_span("--every", running.every)
    summariser = Summariser(repository)
    while True:
        begin_s = time.monotonic()
        try:
            with metrics.noting_failure():
                result = _run_once(repository, origin, running, output, interrupts)
            metrics.finished(repository, result, time.monotonic() - begin_s)
            is_clean = result.is_clean
            _summarise(summariser)
        except KlogError as error:
            if every_ms is None:
                raise
            print_error(error)  # the next run may succeed
            is_clean = False
        if every_ms is None:
            return is_clean
        time.sleep(max(0.0, begin_s + every_ms / 1000 - time.monotonic()))


def _summarise(summariser: Summariser) -> None:
    """Write a summary if one is due. The backup is there without it, and the next run tries again."""
    try:
        summariser.after_run()
    except KlogError as error:
        print_note(f"no summary of backups was written: {error}")


def _run_once(
    repository: Repository,
    origin: Origin,
    running: RunningOptions,
    output: OutputOptions,
    interrupts: Interrupts,
) -> Result:
    from klog.backup.run import run_backup

    damaged = _checked(repository, running.jobs or origin.jobs, quiet=running.quiet) if running.full else ()
    with origin.open() as source, LateProgress("Backing up", quiet=running.quiet) as shown:
        options = replace(_options(running, origin, shown, interrupts), damaged=damaged)
        result = run_backup(repository, source, options)
    for line in problem_lines(result.manifest.problems):
        print_error(line)
    _show(result, running, output)
    return result


def _checked(repository: Repository, jobs: int, *, quiet: bool) -> Sequence[Finding]:
    """What is wrong with the objects of a repository."""
    from klog.backup.verify import VerifyOptions, verify

    with LateProgress("Checking", quiet=quiet) as shown:
        options = VerifyOptions(jobs=jobs, on_total=shown.begin, on_bytes=shown.advance)
        return verify(repository, repository.ids(), options).findings


def _show(result: Result, running: RunningOptions, output: OutputOptions) -> None:
    if not output.for_people:
        output.show([result_row(result)])
    elif not running.quiet:
        print_line(result_text(result))
    if result.damaged and not running.quiet:
        names = ", ".join(map(str, result.damaged[:5])) + (", ..." if len(result.damaged) > 5 else "")
        print_note(f"records of {names} are damaged at their source, and not in the backup")


def _options(
    running: RunningOptions, origin: Origin, shown: LateProgress, interrupts: Interrupts
) -> RunOptions:
    from klog.backup.run import RunOptions
    from klog.export.options_parsing import parse_size_bytes
    from klog.storage.cleaner.throttle import Throttle

    throttle = None
    if running.throttle is not None:
        throttle = Throttle(parse_size_bytes("--throttle", running.throttle))

    def on_bytes(size_bytes: int) -> None:
        interrupts.check()  # partitions that are copied side by side are not finished first
        shown.advance(size_bytes)
        if throttle is not None:
            throttle.take(size_bytes)

    metadata, problems = _metadata(origin)
    return RunOptions(
        id_suffix=secrets.token_hex(4),
        klog_version=version("klog"),
        patterns=running.patterns(),
        jobs=running.jobs or origin.jobs,
        log_end=running.log_end,
        metadata=metadata,
        problems=problems,
        on_total=shown.begin,
        on_bytes=on_bytes,
    )


def _metadata(origin: Origin) -> tuple[bytes | None, tuple[Problem, ...]]:
    """The cluster's metadata, or why it could not be read: logs are backed up all the same."""
    from klog.backup.model import Problem

    if origin.metadata is None:
        return None, ()
    try:
        return origin.metadata(), ()
    except KlogError as error:
        if exit_code(error) == WRONG_USAGE:
            raise
        what = f"the metadata could not be read; that of the backup before stays, if there is one: {error}"
        return None, (Problem(None, what),)


class LateProgress:
    """A progress bar that begins when the bytes to read are known."""

    def __init__(self, title: str, *, quiet: bool) -> None:
        self._title = title
        self._quiet = quiet
        self._stack = ExitStack()
        self._advance: Callable[[int], object] = lambda _bytes: None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def begin(self, total_bytes: int) -> None:
        """So many bytes are to be read."""
        self._advance = self._stack.enter_context(progress(self._title, total_bytes, quiet=self._quiet))

    def advance(self, size_bytes: int) -> None:
        """So many more are done."""
        self._advance(size_bytes)
