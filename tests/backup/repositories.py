"""Backup repositories for tests: runs with a clock of their own, and what a repository gives back."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from klog.admin import connect
from klog.admin.settings import settings_of
from klog.backup.directories import LogDirectories
from klog.backup.keys import UserKey
from klog.backup.model import PartitionState, RepositoryInfo
from klog.backup.reading import segment_bytes
from klog.backup.repository import Repository, open_or_create
from klog.backup.run import Result, RunOptions, run_backup
from klog.backup.store import Store, open_store
from klog.backup.wire.source import WireSource
from klog.formats.names import FileKind, TopicPartition, segment_file

TIMEOUT_MS = 10_000
LATER_MS = 3_600_000
"""The clock of the tests is an hour ahead, so that no file seems to have been written just now."""


@dataclass
class Backups:
    """A repository and the runs that a test makes. Ids are numbered."""

    place: Path | str
    compression: str = "none"
    store: Store | None = None
    key: UserKey | None = None
    now_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000 + LATER_MS)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def repository(self) -> Repository:
        """The repository, opened anew."""
        store = self.store or open_store(str(self.place))
        return open_or_create(store, RepositoryInfo("test", compression=self.compression), self.key)

    def options(self, **changes: Any) -> RunOptions:
        """The options of the next run, a second later."""
        self.now_ms += 1000
        options = RunOptions(
            f"{next(self._numbers):04d}",
            "1.0",
            now_ms=lambda: self.now_ms,
            pause=lambda _seconds: None,
        )
        return replace(options, **changes)

    def run(self, *sources: Path, **changes: Any) -> Result:
        """Back up log directories."""
        return run_backup(
            self.repository, LogDirectories([str(each) for each in sources]), self.options(**changes)
        )

    def run_over_wire(self, bootstrap: str, timeout_ms: int = TIMEOUT_MS, **changes: Any) -> Result:
        """Back up a running cluster."""
        settings = settings_of({}, bootstrap=bootstrap, timeout_ms=timeout_ms)
        with WireSource(partial(connect.cluster, settings), bootstrap) as source:
            return run_backup(self.repository, source, self.options(**changes))

    def states(self, identifier: str | None = None) -> dict[TopicPartition, PartitionState]:
        """The partitions of a backup, by default the newest."""
        repository = self.repository
        manifest = repository.newest() if identifier is None else repository.manifest(identifier)
        assert manifest is not None
        refs = repository.partitions(manifest)
        return {partition: repository.state(partition, ref) for partition, ref in refs.items()}

    def segments(self, topic: str, partition: int = 0, identifier: str | None = None) -> dict[str, bytes]:
        """The segments of a partition as they would be restored, by the names of their files."""
        state = self.states(identifier)[TopicPartition(topic, partition)]
        return restored(self.repository, state)

    def objects(self, below: str = "data") -> set[str]:
        """The names of objects."""
        return set(self.repository.store.files(below))


def restored(repository: Repository, state: PartitionState) -> dict[str, bytes]:
    """The segments of a state, by the names of their files."""
    return {
        segment_file(FileKind.LOG, base): b"".join(map(bytes, segment_bytes(repository, pieces)))
        for base, pieces in state.segments().items()
    }


def log_files(directory: Path) -> dict[str, bytes]:
    """The segments in a partition directory."""
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))}
