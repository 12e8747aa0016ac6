"""One run of a backup: finds what a source has, copies what has changed, and writes a manifest.

Partitions that the run was not asked for, and those of other sources, are
carried over from the newest backup. So each manifest has all partitions of the repository.
"""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final

from klog.backup import documents, names
from klog.backup.healing import heal, to_read_anew
from klog.backup.joining import JOIN_RULES, Joiner, JoinRules
from klog.backup.model import (
    Manifest,
    PartitionRef,
    Problem,
    StoredObject,
    is_wanted,
)
from klog.backup.partition_copy import CopyRules, Outcome
from klog.backup.pieces import PIECE_BYTES, PieceWriter
from klog.backup.repository import Repository
from klog.backup.sources import BackupSource, Candidate, Found
from klog.backup.state_writing import StateWriter
from klog.backup.store import StoreError
from klog.backup.verify import Finding
from klog.formats.errors import FormatError, KlogError, MissingInputError, StorageError, UsageError
from klog.formats.names import TopicPartition
from klog.jobs.threads import side_by_side

_MOST_CHANGES: Final = 64
_MOST_CHANGES_SHARE: Final = 4


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What to back up, and how.

    `patterns` are regular expressions of topics (none: all). `id_suffix` ends the backup's id. `log_end`
    takes records above the high watermark of a running broker. `metadata` is the cluster's metadata in its
    JSON form, or None: that of the backup before. `problems` are what is known to be missing before the run.
    `damaged` is what a check of the repository has found: it is stored anew as far as that is possible.
    `joining` says when small pieces are joined. `on_total` receives the number of bytes to read, and
    `on_bytes` those that were read.
    """

    id_suffix: str
    klog_version: str
    patterns: tuple[str, ...] = ()
    jobs: int = 1
    log_end: bool = False
    metadata: bytes | None = None
    problems: tuple[Problem, ...] = ()
    damaged: Sequence[Finding] = ()
    joining: JoinRules = JOIN_RULES
    now_ms: Callable[[], int] = _now_ms
    pause: Callable[[float], object] = time.sleep
    on_total: Callable[[int], object] = lambda _bytes: None
    on_bytes: Callable[[int], object] = lambda _bytes: None


@dataclass(frozen=True, slots=True)
class Result:
    """The backup that was made, how many partitions it has, and how many of them were read or are gone.

    `stored_pieces` is how many objects with records the run has added, `healed` how many damaged objects it
    has stored anew.
    """

    manifest: Manifest
    partitions: int
    changed: int
    removed: int
    damaged: tuple[TopicPartition, ...]
    stored_pieces: int = 0
    healed: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether everything is in the backup."""
        return not self.manifest.problems


def run_backup(repository: Repository, source: BackupSource, options: RunOptions) -> Result:
    """Back up the logs of a source. Raises `KlogError` if there can be no backup."""
    with closing(_Run(repository, options)) as run:
        return run.run(source)


@dataclass(slots=True)
class _Work:
    """A partition to copy, and its reference in the backup before."""

    partition: TopicPartition
    candidate: Candidate
    ref: PartitionRef | None


@dataclass(slots=True)
class _Counts:
    """What was read and stored so far; several threads add to it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    read_bytes: int = 0
    stored_bytes: int = 0
    stored_pieces: int = 0

    def read(self, size_bytes: int) -> None:
        with self.lock:
            self.read_bytes += size_bytes

    def stored(self, size_bytes: int) -> None:
        with self.lock:
            self.stored_bytes += size_bytes
            self.stored_pieces += 1


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
        self._problems: list[Problem] = list(options.problems)
        self._cluster_id: str | None = None
        self._base: str | None = None
        self._base_metadata: StoredObject | None = None
        self._states = StateWriter(repository, self._writer)
        self._joiner: Joiner | None = None
        self._read_anew: frozenset[TopicPartition] = frozenset()

    def close(self) -> None:
        """Remove what was begun."""
        self._writer.discard()

    def run(self, source: BackupSource) -> Result:
        begin_ms = self._options.now_ms()
        self._states.identifier = names.backup_id(begin_ms, self._options.id_suffix)
        before = self._before()
        found = source.find(lambda topic: is_wanted(topic, self._options.patterns), before, begin_ms)
        self._check_cluster(found)
        self._problems += [Problem(None, str(error)) for error in found.problems]
        self._problems += self._unmatched({each.topic for each in (*found.candidates, *before)})
        healed = heal(self._repository, self._options.damaged, found.candidates, self._options.metadata)
        self._problems += healed.problems
        self._writer.lost = healed.lost
        if self._options.damaged:
            self._read_anew = to_read_anew(self._repository, before, healed.lost)
        work, unchanged = _divide(found.candidates, before, self._read_anew)
        self._joiner = Joiner(self._repository, self._writer, self._options.joining, len(work))
        self._options.on_total(sum(each.candidate.new_bytes(each.ref) for each in work))
        refs: dict[TopicPartition, PartitionRef | None] = dict.fromkeys(self._removed(before, found))
        removed = len(refs)
        for each, outcome in zip(work, side_by_side(self._options.jobs, self._copied, work), strict=True):
            self._take(each, outcome, refs)
            if self._writer.has_many_waiting:
                self._writer.flush()
        self._states.flush(refs)
        for partition in unchanged:
            if before[partition].is_damaged:
                self._problems.append(Problem(partition, "is damaged at its source, as in the backup before"))
        self._check_base()
        manifest = self._manifest(begin_ms, found, refs)
        kept = {partition: ref for partition, ref in before.items() if refs.get(partition, ref) is not None}
        manifest = replace(manifest, unseen=_unseen(manifest, kept, found))
        self._repository.store.put(names.manifest(manifest.id), documents.MANIFEST.encode(manifest))
        partitions = self._repository.partitions(manifest)
        return Result(
            manifest,
            len(partitions),
            len(work),
            removed,
            tuple(sorted(each for each in found.candidates if _is_damaged(partitions.get(each)))),
            self._counts.stored_pieces,
            healed.stored,
        )

    def _on_bytes(self, size_bytes: int) -> None:
        self._counts.read(size_bytes)
        self._options.on_bytes(size_bytes)

    def _check_cluster(self, found: Found) -> None:
        """A repository is of one cluster: partitions of two would be mixed up. Raises `UsageError`."""
        ids = {each.cluster_id for each in found.sources} | {self._cluster_id}
        clusters = sorted(each for each in ids if each is not None)
        if len(clusters) > 1:
            what = f"the sources and the backups are of several clusters: {', '.join(clusters)}"
            raise UsageError(what, file=self._repository.place, cure="use a repository for each cluster")
        self._cluster_id = clusters[0] if clusters else None

    def _unmatched(self, topics: Collection[str]) -> Iterator[Problem]:
        """Patterns that no topic has: a mistyped one would back up nothing, night after night."""
        for pattern in self._options.patterns:
            if not any(is_wanted(topic, (pattern,)) for topic in topics):
                yield Problem(None, f"no topic matches {pattern}, neither in the sources nor in the backup")

    def _before(self) -> dict[TopicPartition, PartitionRef]:
        """The partitions of the newest backup that can be read."""
        manifest, refs = self._newest(self._problems)
        if manifest is not None:
            self._base, self._cluster_id = manifest.id, manifest.cluster_id
            self._base_metadata = manifest.metadata
        return refs

    def _newest(self, problems: list[Problem]) -> tuple[Manifest | None, dict[TopicPartition, PartitionRef]]:
        """The newest backup that can be read, with its partitions; newer ones are `problems`."""
        for identifier in self._repository.newest_first():
            try:
                manifest = self._repository.manifest(identifier)
                return manifest, self._repository.partitions(manifest)
            except MissingInputError:
                continue  # it was just pruned
            except FormatError as error:
                problems.append(Problem(None, str(error)))
        return None, {}

    def _check_base(self) -> None:
        """What this run has not stored anew must be there still. Raises `StorageError`."""
        base = self._base
        if base is not None and self._repository.store.status(names.manifest(base)) is None:
            what = f"the backup {base}, on which this one builds, was pruned meanwhile"
            cure = "run it again, and let the grace time of klog backup prune be longer than a run"
            raise StorageError(what, file=self._repository.place, cure=cure)

    def _removed(self, before: Mapping[TopicPartition, PartitionRef], found: Found) -> list[TopicPartition]:
        """The partitions of the backup before that are no longer in the source they came from."""
        if found.problems:
            return []  # what cannot be read may have them
        return [
            partition
            for partition, ref in before.items()
            if any(each.has(ref) for each in found.whole)
            and is_wanted(partition.topic, self._options.patterns)
            and partition not in found.candidates
        ]

    def _copied(self, work: _Work) -> _Copied:
        problems: list[KlogError] = []
        try:
            return _Copied(self._copy(work, problems), problems)
        except StoreError:
            raise
        except KlogError as error:
            return _Copied(None, [*problems, *([] if error in problems else [error])])

    def _copy(self, work: _Work, problems: list[KlogError]) -> Outcome:
        previous = None
        try:
            if work.ref is not None and work.partition not in self._read_anew:
                previous = self._repository.state(work.partition, work.ref)
        except FormatError as error:
            problems.append(error)  # the repository is damaged: the partition is read anew
        outcome = work.candidate.copy(previous, self._writer, self._rules, problems)
        if outcome.state is None or outcome.stays_as_before or previous is None or self._joiner is None:
            return outcome
        return replace(outcome, state=self._joiner.joined(outcome.state, previous, problems.append))

    def _take(
        self,
        work: _Work,
        copied: _Copied,
        refs: dict[TopicPartition, PartitionRef | None],
    ) -> None:
        self._problems += [Problem(work.partition, str(error)) for error in copied.problems]
        if copied.outcome is None or copied.outcome.stays_as_before:
            return
        state = copied.outcome.state
        if state is None:
            if work.ref is not None:
                refs[work.partition] = None
            return
        self._problems += [
            Problem(work.partition, _damage_text(each.file, each.position_bytes, each.what))
            for each in state.damage
        ]
        seen = copied.outcome.fingerprint
        if seen is None:
            seen = work.candidate.fingerprint
        if copied.problems:
            seen = ""
        self._states.add(state, work.ref, seen, refs)

    def _manifest(
        self,
        begin_ms: int,
        found: Found,
        refs: Mapping[TopicPartition, PartitionRef | None],
    ) -> Manifest:
        table, changes = self._table_and_changes(self._states.identifier, refs)
        end_ms = self._options.now_ms()
        return Manifest(
            id=names.backup_id(end_ms, self._options.id_suffix),
            begin_ms=begin_ms,
            end_ms=end_ms,
            klog_version=self._options.klog_version,
            cluster_id=self._cluster_id,
            sources=tuple(dict.fromkeys(found.sources)),
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
        base, whole = self._newest([])  # a run at the same time may have ended meanwhile
        changes = {**({} if base is None else base.changes), **refs}
        table = None if base is None else base.table
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
        data, kept = self._options.metadata, self._base_metadata
        if data is not None:
            return self._repository.put_metadata(data)
        return None if kept is None or kept.name in self._writer.lost else kept


@dataclass(frozen=True, slots=True)
class _Copied:
    outcome: Outcome | None
    problems: Sequence[KlogError]


def _divide(
    candidates: Mapping[TopicPartition, Candidate],
    before: Mapping[TopicPartition, PartitionRef],
    read_anew: frozenset[TopicPartition],
) -> tuple[list[_Work], list[TopicPartition]]:
    """The partitions to copy, and those that have not changed and need not be `read_anew`."""
    work, unchanged = [], []
    for partition, candidate in sorted(candidates.items(), key=operator.itemgetter(0)):
        ref = before.get(partition)
        is_same = ref is not None and candidate.fingerprint and candidate.fingerprint == ref.fingerprint
        if is_same and partition not in read_anew:
            unchanged.append(partition)
        else:
            work.append(_Work(partition, candidate, ref))
    return work, unchanged


def _unseen(
    manifest: Manifest, kept: Mapping[TopicPartition, PartitionRef], found: Found
) -> frozenset[TopicPartition]:
    """Those of the backup before that are kept and that the sources have not shown, or not all replicas."""
    return frozenset(
        partition
        for partition, ref in kept.items()
        if (partition not in found.candidates or partition in found.unlisted)
        and manifest.covers(partition.topic, ref)
    )


def _is_damaged(ref: PartitionRef | None) -> bool:
    return ref is not None and ref.is_damaged


def _damage_text(file: str, position_bytes: int | None, what: str) -> str:
    return str(KlogError(what, file=file, position_bytes=position_bytes))
