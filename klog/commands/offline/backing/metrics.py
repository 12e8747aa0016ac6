"""What `klog backup run` tells Prometheus after each run: in a file for node_exporter, or at a port."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klog.commands.shared.messages import print_error
from klog.formats.errors import KlogError, UsageError
from klog.server.metrics.exposition import Metric, Sample, counter, gauge, render
from klog.storage.files.files import read_small, write_atomically

if TYPE_CHECKING:
    from klog.backup.model import Manifest
    from klog.backup.repository import Repository
    from klog.backup.run import Result

_NEWEST: Final = "klog_backup_newest_restorable_timestamp_seconds"
_OLDEST: Final = "klog_backup_oldest_partition_timestamp_seconds"
CLEAN, INCOMPLETE, FAILED = "clean", "incomplete", "failed"


@dataclass(frozen=True, slots=True)
class _LastRun:
    """The last run. Values that it does not know are None."""

    end_s: float
    duration_s: float
    outcome: str
    problems: int | None = None
    read_bytes: int | None = None
    stored_bytes: int | None = None
    stored_pieces: int | None = None


@dataclass(slots=True)
class BackupMetrics:
    """Counts runs, and writes what is known to `path` (None: nowhere) after each."""

    path: Path | None = None
    _last: _LastRun | None = None
    _outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys((CLEAN, INCOMPLETE, FAILED), 0))
    _read_bytes: int = 0
    _stored_bytes: int = 0
    _known: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is not None and not self.path.absolute().parent.is_dir():
            cure = "name a file in node_exporter's textfile directory"
            raise UsageError("--metrics-file: its directory does not exist", file=str(self.path), cure=cure)

    def finished(self, repository: Repository, result: Result, duration_s: float) -> None:
        """Take a run that has made a backup. Raises `KlogError`."""
        manifest = result.manifest
        outcome = CLEAN if result.is_clean else INCOMPLETE
        self._outcomes[outcome] += 1
        self._read_bytes += manifest.read_bytes
        self._stored_bytes += manifest.stored_bytes
        self._last = _LastRun(
            time.time(),
            duration_s,
            outcome,
            len(manifest.problems),
            manifest.read_bytes,
            manifest.stored_bytes,
            result.stored_pieces,
        )
        self._known = _values_of(repository, manifest)
        self._write()

    @contextmanager
    def noting_failure(self) -> Iterator[None]:
        """Take a run that has made no backup, if a `KlogError` ends the block. What is known of the newest
        backup stays.
        """
        begin_s = time.monotonic()
        try:
            yield
        except KlogError:
            try:
                self._failed(time.monotonic() - begin_s)
            except KlogError as second:
                print_error(second)
            raise

    def _failed(self, duration_s: float) -> None:
        self._outcomes[FAILED] += 1
        self._last = _LastRun(time.time(), duration_s, FAILED)
        if not self._known and self.path is not None:
            self._known = _values_in(self.path)
        self._write()

    def text(self) -> Iterator[str]:
        """The metrics in Prometheus' text format."""
        return render(self._metrics())

    def _write(self) -> None:
        if self.path is not None:
            write_atomically(self.path, "".join(self.text()).encode())

    def _metrics(self) -> Iterator[Metric]:
        for name, text in _OF_BACKUP.items():
            if name in self._known:
                yield gauge(name, text, self._known[name])
        last = self._last
        if last is not None:
            for name, text, value in (
                ("timestamp_seconds", "When the last run ended.", last.end_s),
                ("duration_seconds", "How long the last run took.", last.duration_s),
                ("success", "1 if the last run has made a backup, even an incomplete one.",
                 last.outcome != FAILED),
                ("problems", "What the last run could not back up, or not completely.", last.problems),
                ("read_bytes", "What the last run has read.", last.read_bytes),
                ("stored_bytes", "What the last run has added to the repository.", last.stored_bytes),
                ("stored_pieces", "The objects of records that the last run has added.", last.stored_pieces),
            ):  # fmt: skip
                if value is not None:
                    yield gauge(f"klog_backup_last_run_{name}", text, value)
        outcomes = [Sample({"outcome": outcome}, count) for outcome, count in self._outcomes.items()]
        yield Metric("klog_backup_runs_total", "counter", "Runs since the start of the process.", outcomes)
        yield counter("klog_backup_read_bytes_total", "Bytes read since the start.", self._read_bytes)
        yield counter("klog_backup_stored_bytes_total", "Bytes stored since the start.", self._stored_bytes)


_OF_BACKUP: Final = {
    _NEWEST: "The newest moment that can be restored: when the newest backup began.",
    _OLDEST: "The moment of the undamaged partition that is the furthest behind in the newest backup.",
    "klog_backup_partitions": "The partitions of the newest backup.",
    "klog_backup_log_bytes": "The size of the logs in the newest backup.",
    "klog_backup_damaged_partitions": "The partitions that are damaged at their source.",
    "klog_backup_damaged_ranges": "The ranges of damaged batches at the sources, which are not backed up.",
}


def _values_of(repository: Repository, manifest: Manifest) -> dict[str, float]:
    """The values of a backup. Raises `KlogError`."""
    from klog.backup.restoring.selection import known_ms

    refs = repository.partitions(manifest)
    damaged = [(partition, ref) for partition, ref in refs.items() if ref.is_damaged]
    whole = [item for item in refs.items() if not item[1].is_damaged]
    oldest_ms = min((known_ms(manifest, *item) for item in whole), default=manifest.begin_ms)
    values: dict[str, float] = dict.fromkeys(_OF_BACKUP, 0)
    return values | {
        _NEWEST: manifest.begin_ms / 1000,
        _OLDEST: oldest_ms / 1000,
        "klog_backup_partitions": len(refs),
        "klog_backup_log_bytes": sum(ref.size_bytes for ref in refs.values()),
        "klog_backup_damaged_partitions": len(damaged),
        "klog_backup_damaged_ranges": sum(len(repository.state(*item).damage) for item in damaged),
    }


def _values_in(path: Path) -> dict[str, float]:
    """The values of the newest backup that a process before has written; none if there is no such file."""
    found = {}
    with suppress(KlogError, ValueError):
        for line in read_small(os.fspath(path)).decode("ascii").splitlines():
            name, _, value = line.partition(" ")
            if name in _OF_BACKUP:
                found[name] = float(value)
    return found
