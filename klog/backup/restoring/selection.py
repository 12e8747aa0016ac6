"""Chooses the states of a repository's partitions around a moment."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import BinaryIO

from klog.backup.model import Manifest, PartitionRef, PartitionState, Piece, StoredObject
from klog.backup.moment.view import CHECKPOINT_AGE_MS, PartitionView, view_of
from klog.backup.names import time_of_id
from klog.backup.reading import open_piece
from klog.backup.repository import Repository
from klog.backup.restoring.damage import LeftOut, OnDamage, refuse
from klog.formats.errors import FormatError, MissingInputError
from klog.formats.names import TopicPartition


class RepositoryPieces:
    """The `PieceSource` that a repository is."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def open_piece(self, piece: Piece) -> BinaryIO:
        """The batches of a piece."""
        return open_piece(self._repository, piece)

    def read_stored(self, stored: StoredObject) -> bytes:
        """A small object, checked."""
        return self._repository.read_stored(stored)


def newest_backup(repository: Repository, on_damage: OnDamage = refuse) -> Manifest:
    """The newest backup. Raises `MissingInputError` if there is none."""
    for identifier in repository.newest_first():
        manifest = _manifest(repository, identifier, on_damage)
        if manifest is not None:
            return manifest
    raise MissingInputError("holds no backup yet", file=repository.place, cure="klog backup run makes one")


def _manifest(repository: Repository, identifier: str, on_damage: OnDamage) -> Manifest | None:
    """A backup whose partitions can be read; None if it is damaged, or was just pruned."""
    try:
        manifest = repository.manifest(identifier)
        repository.partitions(manifest)
    except MissingInputError:
        return None
    except FormatError as error:
        on_damage(LeftOut(None, error, subject=f"the backup {identifier}"))
        return None
    return manifest


def views_of_backup(
    repository: Repository, manifest: Manifest, on_damage: OnDamage = refuse
) -> Iterator[PartitionView]:
    """The partitions as a backup has them."""
    for partition, ref in sorted(repository.partitions(manifest).items()):
        found = ref, known_ms(manifest, partition, ref)
        yield from _views(repository, partition, (found, None), on_damage)


def manifests_around(repository: Repository, at_ms: int, on_damage: OnDamage = refuse) -> list[Manifest]:
    """The last backups that began at or before a moment, and the first one that has all that had arrived by
    then (or else the newest), by time. Later ones follow that have partitions which that one did not read.

    A run that had begun by then may not have read all partitions yet, so the one before it is there, too.
    Raises `MissingInputError` if there is no backup.
    """
    complete_ms = at_ms + CHECKPOINT_AGE_MS
    damaged: set[str] = set()
    while ids := repository.ids_around(at_ms, complete_ms, damaged):
        after = bisect_right(ids, at_ms, key=time_of_id)
        complete = bisect_left(ids, complete_ms, key=time_of_id)
        chosen = [*ids[max(0, after - 2) : after], *ids[after:][: complete - after + 1][-1:]]
        found = {each: _manifest(repository, each, on_damage) for each in chosen}
        manifests = [each for each in found.values() if each is not None]
        if len(manifests) == len(chosen):
            return [*manifests, *_reading_others(repository, manifests[-1], complete_ms, on_damage)]
        damaged |= {each for each, manifest in found.items() if manifest is None}
    return [newest_backup(repository, on_damage)]


def _reading_others(
    repository: Repository, last: Manifest, complete_ms: int, on_damage: OnDamage
) -> Iterator[Manifest]:
    """The backups after `last` that are the first to read, from `complete_ms` on, what it only carried over:
    partitions of other sources or topics. The newest one says what none of them has read.
    """
    before = repository.partitions(last)
    due = {
        partition: ref for partition, ref in before.items() if known_ms(last, partition, ref) < complete_ms
    }
    if not due:
        return
    newest = repository.partitions(newest_backup(repository, on_damage))
    unread = {partition for partition, ref in due.items() if newest.get(partition) != ref}
    # A source may also have had a partition at the moment that no backup has seen yet.
    read_later = {_origin(ref) for ref in newest.values() if ref.read_time_ms >= complete_ms}
    found_later = {_origin(ref) for partition, ref in newest.items() if partition not in before}
    sources = {_origin(ref): ref for ref in due.values() if _origin(ref) in read_later}
    listed = {origin for origin, ref in sources.items() if any(each.has(ref) for each in last.sources)}
    unread_sources = set(sources) - _read_from(last, sources) - (listed - found_later)
    for identifier in repository.ids_after(last.id):
        if not unread and not unread_sources:
            return
        manifest = _manifest(repository, identifier, on_damage)
        if manifest is None:
            continue
        refs = repository.partitions(manifest)
        read = {
            each for each in unread if each not in refs or known_ms(manifest, each, refs[each]) >= complete_ms
        }
        read_sources = _read_from(manifest, sources) & unread_sources
        if read or read_sources:
            yield manifest
        unread -= read
        unread_sources -= read_sources


_Origin = tuple[str, int | None]


def _origin(ref: PartitionRef) -> _Origin:
    """The source that a partition was read from."""
    return ref.source, ref.broker_id


def _read_from(manifest: Manifest, sources: Mapping[_Origin, PartitionRef]) -> set[_Origin]:
    """Which of some sources a run has read with all topics; each has a reference from there."""
    if manifest.patterns:
        return set()
    return {origin for origin, ref in sources.items() if any(each.has(ref) for each in manifest.sources)}


_Found = tuple[PartitionRef, int]


def views_around(
    repository: Repository, manifests: Sequence[Manifest], at_ms: int, on_damage: OnDamage = refuse
) -> Iterator[PartitionView]:
    """The partitions as the backups around a moment have them. One that was deleted by then is left out."""
    known: dict[TopicPartition, _Found] = {}
    following: dict[TopicPartition, _Found] = {}
    for manifest in manifests:
        refs = repository.partitions(manifest)
        if manifest.end_ms <= at_ms:
            known = {partition: found for partition, found in known.items() if partition in refs}
        for partition, ref in refs.items():
            read_ms = known_ms(manifest, partition, ref)
            if read_ms <= at_ms:
                before = known.get(partition)
                if before is None or before[0] != ref or before[1] < read_ms:
                    known[partition] = (ref, read_ms)
            elif partition not in following or following[partition][1] < at_ms + CHECKPOINT_AGE_MS:
                following[partition] = (ref, read_ms)
    for partition in sorted({*known, *following}):
        around = known.get(partition), following.get(partition)
        yield from _views(repository, partition, around, on_damage)


def _views(
    repository: Repository,
    partition: TopicPartition,
    around: tuple[_Found | None, _Found | None],
    on_damage: OnDamage,
) -> Iterator[PartitionView]:
    """The view of a partition that its states before and after a moment give; none if both are damaged."""
    states: list[PartitionState | None] = []
    damage: list[FormatError] = []
    for found in around:
        try:
            states.append(None if found is None else _state(repository, partition, *found))
        except FormatError as error:
            states.append(None)
            damage.append(error)
    before, after = states
    is_lost = before is None and after is None
    for each in damage:
        subject = "its whole log" if is_lost else "what a backup says of it"
        on_damage(LeftOut(partition, each, subject=subject))
    if not is_lost:
        yield view_of(before, after)


def known_ms(manifest: Manifest, partition: TopicPartition, ref: PartitionRef) -> int:
    """When a partition was last known to be as a reference says.

    A run does not read a partition again whose files have not changed. It was not looked at if its log
    directory was no source, if no pattern matched, or if there was a problem.
    """
    if manifest.covers(partition.topic, ref) and not manifest.has_failed(partition):
        return max(ref.read_time_ms, manifest.begin_ms)
    return ref.read_time_ms


def _state(
    repository: Repository, partition: TopicPartition, ref: PartitionRef, read_ms: int
) -> PartitionState:
    return replace(repository.state(partition, ref), read_time_ms=read_ms)
