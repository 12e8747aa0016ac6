"""One run of a backup: lists the sources, copies what has changed, and writes a manifest.

Partitions that the run was not asked for, and those of log directories that are not among its sources, are
carried over from the newest backup. So each manifest has all partitions of the repository.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Final

from klog.backup import documents, names
from klog.backup.choosing import in_order_of_choice
from klog.backup.copying import PIECE_BYTES, PieceWriter
from klog.backup.documents import StoredState
from klog.backup.model import (
    Manifest,
    PartitionRef,
    PartitionState,
    Problem,
    StoredObject,
    is_wanted,
)
from klog.backup.partition_copy import CopyRules, Outcome, copy_partition
from klog.backup.repository import Repository
from klog.backup.scanning import Listed, Scan, fingerprint, scan
from klog.backup.store import StoreError
from klog.formats.errors import FormatError, KlogError, StorageError, UsageError
from klog.formats.names import TopicPartition
from klog.jobs.threads import side_by_side

_MOST_STATES: Final = 2_000
"""How many pieces the states in one object describe, so that reading one state does not read all."""
_MOST_CHANGES: Final = 64
_MOST_CHANGES_SHARE: Final = 4


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What to back up, and how.

    `patterns` are regular expressions of topics (none: all). `id_suffix` ends the backup's id. `log_end`
    takes records above the high watermark of a running broker. `metadata` is the cluster's metadata in its
    JSON form, or None. `watch` receives the number of bytes to read, and then those that were read.
    """

    id_suffix: str
    klog_version: str
    patterns: tuple[str, ...] = ()
    jobs: int = 1
    log_end: bool = False
    metadata: bytes | None = None
    now_ms: Callable[[], int] = _now_ms
    pause: Callable[[float], object] = time.sleep
    on_total: Callable[[int], object] = lambda _bytes: None
    on_bytes: Callable[[int], object] = lambda _bytes: None


@dataclass(frozen=True, slots=True)
class Result:
    """The backup that was made, and how many partitions it has, and how many of them were read."""

    manifest: Manifest
    partitions: int
    changed: int
    removed: int
    damaged: tuple[TopicPartition, ...]

    @property
    def is_clean(self) -> bool:
        """Whether everything is in the backup."""
        return not self.manifest.problems


def run_backup(repository: Repository, sources: Sequence[str], options: RunOptions) -> Result:
    """Back up the log directories below `sources`. Raises `KlogError` if there can be no backup."""
    with closing(_Run(repository, options)) as run:
        return run.run(sources)


@dataclass(slots=True)
class _Work:
    """A partition to copy: its replicas, and its reference in the backup before."""

    partition: TopicPartition
    replicas: list[Listed]
    ref: PartitionRef | None


@dataclass(slots=True)
class _Counts:
    """What was read and stored so far; several threads add to it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    read_bytes: int = 0
    stored_bytes: int = 0

    def read(self, size_bytes: int) -> None:
        with self.lock:
            self.read_bytes += size_bytes

    def stored(self, size_bytes: int) -> None:
        with self.lock:
            self.stored_bytes += size_bytes


class _Run:
    def __init__(self, repository: Repository, options: RunOptions) -> None:
        self._repository = repository
        self._options = options
        self._counts = _Counts()
        self._writer = PieceWriter(
            repository.store,
            repository.info.compression,
            piece_bytes=PIECE_BYTES,
            on_bytes=self._on_bytes,
            on_stored=self._counts.stored,
            now_ms=options.now_ms,
        )
        self._rules = CopyRules(options.now_ms, options.pause, options.log_end)
        self._problems: list[Problem] = []
        self._cluster_id: str | None = None
        self._base: str | None = None
        self._base_metadata: StoredObject | None = None
        self._states = _StateWriter(repository, self._writer)

    def close(self) -> None:
        """Remove what was begun."""
        self._writer.discard()

    def run(self, sources: Sequence[str]) -> Result:
        begin_ms = self._options.now_ms()
        self._states.identifier = names.backup_id(begin_ms, self._options.id_suffix)
        before = self._before()
        found = scan(sources)
        self._check_cluster(found)
        self._problems += [Problem(None, str(error)) for error in found.problems]
        replicas = {
            partition: listed
            for partition, listed in found.replicas.items()
            if is_wanted(partition.topic, self._options.patterns)
        }
        work, unchanged = self._divide(replicas, before, begin_ms)
        self._options.on_total(sum(_new_bytes(each) for each in work))
        refs: dict[TopicPartition, PartitionRef | None] = dict.fromkeys(
            self._removed(before, replicas, found)
        )
        removed = len(refs)
        for each, outcome in zip(work, side_by_side(self._options.jobs, self._copied, work), strict=True):
            self._take(each, outcome, refs, begin_ms)
            if self._writer.has_many_waiting:
                self._writer.flush()
        self._states.flush(refs)
        for partition in unchanged:
            if before[partition].is_damaged:
                self._problems.append(Problem(partition, "is damaged at its source, as in the backup before"))
        self._check_base()
        manifest = self._manifest(begin_ms, found, refs)
        self._repository.store.put(names.manifest(manifest.id), documents.encode_manifest(manifest))
        partitions = self._repository.partitions(manifest)
        return Result(
            manifest,
            len(partitions),
            len(work),
            removed,
            tuple(sorted(partition for partition in replicas if _is_damaged(partitions.get(partition)))),
        )

    def _on_bytes(self, size_bytes: int) -> None:
        self._counts.read(size_bytes)
        self._options.on_bytes(size_bytes)

    def _check_cluster(self, found: Scan) -> None:
        """A repository is of one cluster: partitions of two would be mixed up. Raises `UsageError`."""
        ids = {each.source.cluster_id for each in found.log_directories} | {self._cluster_id}
        clusters = sorted(each for each in ids if each is not None)
        if len(clusters) > 1:
            what = f"the log directories and the backups are of several clusters: {', '.join(clusters)}"
            raise UsageError(what, file=self._repository.place, cure="use a repository for each cluster")
        self._cluster_id = clusters[0] if clusters else None

    def _before(self) -> dict[TopicPartition, PartitionRef]:
        """The partitions of the newest backup that can be read."""
        for identifier in self._repository.newest_first():
            try:
                manifest = self._repository.manifest(identifier)
                self._base, self._cluster_id = identifier, manifest.cluster_id
                self._base_metadata = manifest.metadata
                return self._repository.partitions(manifest)
            except FormatError as error:
                self._problems.append(Problem(None, str(error)))
        return {}

    def _check_base(self) -> None:
        """What this run has not stored anew must be there still. Raises `StorageError`."""
        base = self._base
        if base is not None and self._repository.store.status(names.manifest(base)) is None:
            what = f"the backup {base}, on which this one builds, was pruned meanwhile"
            cure = "run it again, and let the grace time of klog backup prune be longer than a run"
            raise StorageError(what, file=self._repository.place, cure=cure)

    def _divide(
        self,
        replicas: Mapping[TopicPartition, list[Listed]],
        before: Mapping[TopicPartition, PartitionRef],
        now_ms: int,
    ) -> tuple[list[_Work], list[TopicPartition]]:
        """The partitions to copy, and those that have not changed."""
        work, unchanged = [], []
        for partition in sorted(replicas):
            ref = before.get(partition)
            seen = fingerprint(replicas[partition], now_ms)
            if ref is not None and seen and seen == ref.fingerprint:
                unchanged.append(partition)
            else:
                work.append(_Work(partition, replicas[partition], ref))
        return work, unchanged

    def _removed(
        self,
        before: Mapping[TopicPartition, PartitionRef],
        replicas: Mapping[TopicPartition, list[Listed]],
        found: Scan,
    ) -> list[TopicPartition]:
        """The partitions of the backup before that are no longer in the log directory they came from."""
        if found.problems:
            return []  # a directory that cannot be listed may have them
        directories = {each.source.directory for each in found.log_directories if each.is_whole}
        return [
            partition
            for partition, ref in before.items()
            if ref.source in directories
            and is_wanted(partition.topic, self._options.patterns)
            and partition not in replicas
        ]

    def _copied(self, work: _Work) -> _Copied:
        problems: list[KlogError] = []
        try:
            return _Copied(self._copy(work, problems), problems)
        except StoreError:
            raise
        except StorageError as error:
            return _Copied(None, [*problems, *([] if error in problems else [error])])

    def _copy(self, work: _Work, problems: list[KlogError]) -> Outcome:
        """Copy the best replica; if it is damaged, one that has all that the best one should have."""
        previous = None
        try:
            previous = None if work.ref is None else self._repository.state(work.partition, work.ref)
        except FormatError as error:
            problems.append(error)  # the repository is damaged: the partition is read anew
        first: Outcome | None = None
        failure: StorageError | None = None
        for listed in in_order_of_choice(work.replicas, problems):
            try:
                outcome = copy_partition(listed, previous, self._writer, self._rules)
            except StoreError:
                raise
            except StorageError as error:
                problems.append(error)
                failure = failure or error
                continue
            problems += outcome.problems
            if first is None or _is_better(outcome.state, first.state):
                first = outcome
            if first.state is None or not first.state.damage:
                break
        if first is None:
            raise failure or StorageError("has no replica in use", file=work.replicas[0].path)
        return first

    def _take(
        self,
        work: _Work,
        copied: _Copied,
        refs: dict[TopicPartition, PartitionRef | None],
        begin_ms: int,
    ) -> None:
        self._problems += [Problem(work.partition, str(error)) for error in copied.problems]
        if copied.outcome is None:
            return  # the backup before is kept
        state = copied.outcome.state
        if state is None:
            if work.ref is not None:
                refs[work.partition] = None
            return
        self._problems += [
            Problem(work.partition, _damage_text(each.file, each.position_bytes, each.what))
            for each in state.damage
        ]
        seen = "" if copied.problems else fingerprint(work.replicas, begin_ms)
        self._states.add(state, work.ref, seen, refs)

    def _manifest(
        self,
        begin_ms: int,
        found: Scan,
        refs: Mapping[TopicPartition, PartitionRef | None],
    ) -> Manifest:
        table, changes = self._table_and_changes(self._states.identifier, refs)
        end_ms = self._options.now_ms()
        sources = tuple(each.source for each in found.log_directories)
        return Manifest(
            id=names.backup_id(end_ms, self._options.id_suffix),
            begin_ms=begin_ms,
            end_ms=end_ms,
            klog_version=self._options.klog_version,
            cluster_id=self._cluster_id,
            sources=tuple(dict.fromkeys(sources)),
            patterns=self._options.patterns,
            table=table,
            changes=changes,
            metadata=self._metadata(),
            problems=tuple(self._problems),
            read_bytes=self._counts.read_bytes,
            stored_bytes=self._counts.stored_bytes,
        )

    def _table_and_changes(
        self, identifier: str, refs: Mapping[TopicPartition, PartitionRef | None]
    ) -> tuple[str | None, Mapping[TopicPartition, PartitionRef | None]]:
        """The table that the manifest is based on, and its changes; a new table if they are many."""
        base = self._repository.newest()  # a run at the same time may have ended meanwhile
        changes = {**({} if base is None else base.changes), **refs}
        table = None if base is None else base.table
        whole = {} if base is None else self._repository.partitions(base)
        if table is not None and len(changes) <= max(_MOST_CHANGES, len(whole) // _MOST_CHANGES_SHARE):
            return table, changes
        for partition, ref in refs.items():
            if ref is None:
                whole.pop(partition, None)
            else:
                whole[partition] = ref
        if not whole:
            return None, {}
        name = names.table(identifier)
        self._repository.store.put(name, documents.encode_table(whole))
        return name, {}

    def _metadata(self) -> StoredObject | None:
        """The metadata that was given, or that of the backup before."""
        data = self._options.metadata
        return self._base_metadata if data is None else self._repository.put_metadata(data)


@dataclass(frozen=True, slots=True)
class _Copied:
    outcome: Outcome | None
    problems: Sequence[KlogError]


class _StateWriter:
    """Collects states, and writes objects of them."""

    def __init__(self, repository: Repository, pieces: PieceWriter) -> None:
        self.identifier = ""
        self._pieces = pieces
        self._repository = repository
        self._number = self._size = 0
        self._waiting: list[StoredState] = []
        self._refs: dict[TopicPartition, PartitionRef] = {}

    def add(
        self,
        state: PartitionState,
        before: PartitionRef | None,
        seen: str,
        refs: dict[TopicPartition, PartitionRef | None],
    ) -> None:
        """Add a state; `before` leads to the one before."""
        stored = StoredState(state)
        if before is not None:
            with suppress(FormatError):  # what is damaged is not built upon
                stored = documents.added_to(*self._repository.whole(state.partition, before), state)
        self._waiting.append(stored)
        self._refs[state.partition] = PartitionRef(
            states="",
            source=state.source,
            fingerprint=seen,
            log_start_offset=state.log_start_offset,
            end_offset=state.end_offset,
            size_bytes=state.size_bytes,
            read_time_ms=state.read_time_ms,
            is_damaged=bool(state.damage),
        )
        self._size += 1 + len(stored.state.pieces)
        if self._size >= _MOST_STATES:
            self.flush(refs)

    def flush(self, refs: dict[TopicPartition, PartitionRef | None]) -> None:
        """Write what was added, and put the references into `refs`."""
        if not self._waiting:
            return
        self._pieces.flush()
        name = names.states(self.identifier, self._number)
        self._repository.store.put(name, documents.encode_states(self._waiting))
        refs.update({partition: replace(ref, states=name) for partition, ref in self._refs.items()})
        self._number += 1
        self._waiting, self._refs, self._size = [], {}, 0


def _new_bytes(work: _Work) -> int:
    """About how many bytes are to be read: a replica's, without what the backup has."""
    size = max(sum(file.stat[0] for file in listed.segments()) for listed in work.replicas)
    return max(0, size - (0 if work.ref is None else work.ref.size_bytes))


def _is_better(state: PartitionState | None, than: PartitionState | None) -> bool:
    """Whether a state without damage has all that the damaged one would have."""
    if state is None or than is None:
        return False
    epochs = [max((entry.epoch for entry in each.epochs), default=-1) for each in (state, than)]
    return not state.damage and epochs[0] == epochs[1] and state.end_offset >= than.end_offset


def _is_damaged(ref: PartitionRef | None) -> bool:
    return ref is not None and ref.is_damaged


def _damage_text(file: str, position_bytes: int | None, what: str) -> str:
    return str(KlogError(what, file=file, position_bytes=position_bytes))
