"""The log of a moment as `klog.export` reads it: a split has pieces of one partition.

Pieces are never divided. Those of frequent runs are small: a split has as many consecutive ones as fill it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from typing import BinaryIO

from klog.backup import names
from klog.backup.keys import read_key
from klog.backup.packing import unpacked
from klog.backup.reading import is_repository, open_backups
from klog.backup.repository import Repository
from klog.backup.restoring.histories import Detail
from klog.backup.restoring.plan import PlannedPartition
from klog.backup.restoring.request import RestoreRequest, Selected, plan_of, select
from klog.backup.restoring.selection import RepositoryPieces
from klog.backup.serving.blocks import BlockCache, Streams
from klog.backup.serving.records import BackupRecords, Shared
from klog.export.offset_bounds import resolve_bounds
from klog.export.options import Isolation, ReadOptions
from klog.export.planner import raise_first_loss, require_known, touches
from klog.export.sources import ReplicaFiles, Source
from klog.formats.errors import MissingInputError, UsageError
from klog.jobs.cores import available_cores
from klog.replicas.files import base_name, join, parent
from klog.replicas.splits import AbortedRange, LostRange, PartitionPlan, Plan, Split, SplitFile

# Looking up a time reads a few blocks of each partition.
_CACHE_BYTES = 16 << 20


def source_of(options: ReadOptions) -> Source:
    """What the paths of a job lead to: a repository, or segments. Raises `UsageError`, and with a moment
    `StorageError` if a path cannot be looked at.
    """
    has_moment = options.at_ms is not None or options.backup is not None
    repositories = [path for path in options.paths if is_repository(path, must_know=has_moment)]
    if not repositories:
        if has_moment:
            raise UsageError(
                "at and backup are for a backup repository",
                file=options.paths[0],
                cure="klog backup run makes a repository",
            )
        return ReplicaFiles()
    if len(options.paths) > 1:
        raise UsageError("a repository is read alone", file=repositories[0])
    if options.include_deleted:
        raise UsageError("a backup has nothing that was deleted: leave out includeDeleted")
    return BackupSource(repositories[0], options.encryption_key_file)


class BackupSource:
    """A repository. The key of an encrypted one is in a file, or (None) in the environment of each process
    that reads.
    """

    def __init__(self, place: str, key_file: str | None = None) -> None:
        self._place = place
        self._key_file = key_file

    def __reduce__(self) -> tuple[type[BackupSource], tuple[str, str | None]]:
        return BackupSource, (self._place, self._key_file)

    @cached_property
    def _repository(self) -> Repository:
        return open_backups(self._place, key=None if self._key_file is None else read_key(self._key_file))

    def plan(self, options: ReadOptions) -> Plan:
        """The log of the moment. Raises `KlogError`s, as a restore does."""
        return _plan(self._repository, options)

    def open(self, file: str) -> BinaryIO:
        """A piece."""
        name = f"{names.DATA}/{base_name(parent(file))}/{base_name(file)}"
        return unpacked(name, lambda: self._repository.store.open(name))

    def fingerprints(self, splits: Iterable[Split]) -> Mapping[str, str | None]:  # noqa: ARG002
        """None: objects do not change."""
        return {}


def _plan(repository: Repository, options: ReadOptions) -> Plan:
    wants = options.subscription.wants_some_of
    request = RestoreRequest(options.at_ms, options.backup, wants=wants)
    selected = select(repository, request)
    needs_aborted = options.isolation is Isolation.READ_COMMITTED
    detail = Detail.ABORTED if needs_aborted else Detail.CUT
    restored = plan_of(repository, request, selected, jobs=available_cores(), detail=detail)
    chosen = [each for each in restored.partitions if options.subscription.wants(each.target)]
    if not chosen:
        raise MissingInputError("has none of the selected partitions", file=repository.place)
    require_known(options, {each.target for each in chosen})
    with closing(Streams(RepositoryPieces(repository))) as streams:
        shared = Shared(streams, BlockCache(_CACHE_BYTES), repository.store.path_of)
        bounds = [_bounds(each, options, shared) for each in chosen]
    total_bytes = sum(each.size_bytes for each in chosen)
    target_bytes = min(options.target_split_bytes, total_bytes // (options.min_partitions or 1))
    splits = [
        split
        for planned, (start, end) in zip(chosen, bounds, strict=True)
        for split in _splits(repository.place, planned, start, end, target_bytes, options.isolation)
    ]
    numbered = [replace(split, number=number) for number, split in enumerate(splits)]
    made = Plan(
        splits=tuple(sorted(numbered, key=lambda split: (-split.length_bytes, split.number))),
        partitions=tuple(
            _partition(repository.place, planned, *ends, options.isolation)
            for planned, ends in zip(chosen, bounds, strict=True)
        ),
        lost=tuple(
            lost
            for planned, (start, end) in zip(chosen, bounds, strict=True)
            for lost in _lost(planned, start, end)
        ),
        skipped=_notes(repository.place, selected),
    )
    if options.fail_on_data_loss:
        raise_first_loss(made)
    return made


def _bounds(planned: PlannedPartition, options: ReadOptions, shared: Shared) -> tuple[int, int]:
    """The offsets to read, from and to before."""

    def at_time(timestamp_ms: int) -> int | None:
        records = BackupRecords(shared, planned.view, planned.cut, planned.target)
        found = records.first_at_or_after(timestamp_ms)
        return None if found is None else found.offset

    start = planned.view.log_start_offset
    return resolve_bounds(options, planned.target, start, max(start, planned.cut.end_offset), at_time)


def _partition(
    place: str, planned: PlannedPartition, start: int, end: int, isolation: Isolation
) -> PartitionPlan:
    readable_end = planned.cut.end_offset
    return PartitionPlan(
        topic=planned.target.topic,
        partition=planned.target.partition,
        start_offset=start,
        end_offset=end,
        log_start_offset=planned.view.log_start_offset,
        log_end_offset=readable_end,
        high_watermark=None,
        # Each transaction that is open there is aborted or committed by the moment.
        last_stable_offset=readable_end if isolation is Isolation.READ_COMMITTED else None,
        directories=(join(place, *names.data_directory(planned.target).split("/")),),
    )


def _splits(
    place: str, planned: PlannedPartition, start: int, end: int, target_bytes: int, isolation: Isolation
) -> Iterator[Split]:
    aborted = [
        AbortedRange(each.producer_id, each.first_offset, each.end_offset - 1)
        for each in planned.aborted
        if isolation is Isolation.READ_COMMITTED
    ]
    files = []
    for part in planned.view.parts:
        piece = part.piece
        first, last = max(start, piece.first_offset, part.first_offset), min(end, piece.end_offset)
        if first < last:
            file = join(place, *piece.name.split("/"))
            files.append(SplitFile(file, piece.first_offset, piece.size_bytes, first, last))
    for several in _runs(files, target_bytes):
        first, last = several[0].first_offset, several[-1].end_offset
        yield Split(
            number=0,
            topic=planned.target.topic,
            partition=planned.target.partition,
            file=several[0].file,
            base_offset=several[0].base_offset,
            start_bytes=0,
            end_bytes=sum(file.size_bytes for file in several),
            first_offset=first,
            end_offset=last,
            aborted=tuple(each for each in aborted if each.first_offset < last and first <= each.last_offset),
            files=tuple(several) if len(several) > 1 else (),
        )


def _runs(files: Iterable[SplitFile], target_bytes: int) -> Iterator[list[SplitFile]]:
    """Consecutive files of at most `target_bytes` together, or single larger ones."""
    run: list[SplitFile] = []
    filled_bytes = 0
    for file in files:
        if run and filled_bytes + file.size_bytes > target_bytes:
            yield run
            run, filled_bytes = [], 0
        run.append(file)
        filled_bytes += file.size_bytes
    if run:
        yield run


def _lost(planned: PlannedPartition, start: int, end: int) -> Iterator[LostRange]:
    """What the backup does not have because its source was damaged; also at the end of the log."""
    for each in planned.view.damage:
        is_at_end = each.first_offset == end == planned.cut.end_offset
        lost = LostRange(
            *planned.target,
            each.file,
            each.position_bytes,
            None,
            each.first_offset,
            each.end_offset,
            f"it was damaged when it was backed up: {each.what}",
        )
        if touches(lost, start, end, to_the_end=is_at_end):
            yield lost


def _notes(place: str, selected: Selected) -> tuple[tuple[str, str], ...]:
    if selected.is_before_all:
        return ((place, "the moment is before the first backup: what was removed by then is not there"),)
    if selected.is_after_all:
        return ((place, "the moment is after the newest backup: what came later is not there"),)
    return ()
