"""Chooses the states of a repository's partitions around a moment."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import BinaryIO

from klog.backup.model import Manifest, PartitionRef, PartitionState, Piece, StoredObject
from klog.backup.moment.view import CHECKPOINT_AGE_MS, PartitionView, view_of
from klog.backup.names import time_of_id
from klog.backup.reading import open_piece
from klog.backup.repository import Repository
from klog.formats.errors import MissingInputError
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


def newest_backup(repository: Repository) -> Manifest:
    """The newest backup. Raises `MissingInputError` if there is none."""
    found = repository.newest()
    if found is None:
        raise MissingInputError(
            "holds no backup yet", file=repository.place, cure="klog backup run makes one"
        )
    return found


def views_of_backup(repository: Repository, manifest: Manifest) -> list[PartitionView]:
    """The partitions as a backup has them."""
    return [
        view_of(_state(repository, partition, ref, known_ms(manifest, partition, ref)), None)
        for partition, ref in sorted(repository.partitions(manifest).items())
    ]


def manifests_around(repository: Repository, at_ms: int) -> list[Manifest]:
    """The last backups that began at or before a moment, and the first one that has all that had arrived by
    then (or else the newest), by time.

    A run that had begun by then may not have read all partitions yet, so the one before it is there, too.
    Raises `MissingInputError` if there is no backup.
    """
    ids = repository.ids()
    if not ids:
        newest_backup(repository)
    after = bisect_right(ids, at_ms, key=time_of_id)
    complete = bisect_left(ids, at_ms + CHECKPOINT_AGE_MS, key=time_of_id)
    chosen = [*ids[max(0, after - 2) : after], *ids[after:][: complete - after + 1][-1:]]
    return [repository.manifest(each) for each in chosen]


def views_around(
    repository: Repository, manifests: Sequence[Manifest], at_ms: int
) -> Iterator[PartitionView]:
    """The partitions as the backups around a moment have them. One that was deleted by then is left out."""
    known: dict[TopicPartition, tuple[PartitionRef, int]] = {}
    following: dict[TopicPartition, tuple[PartitionRef, int]] = {}
    for manifest in manifests:
        refs = repository.partitions(manifest)
        if manifest.end_ms <= at_ms:
            known = {partition: found for partition, found in known.items() if partition in refs}
        for partition, ref in refs.items():
            read_ms = known_ms(manifest, partition, ref)
            if read_ms <= at_ms:
                known[partition] = (ref, read_ms)
            elif partition not in following or following[partition][1] < at_ms + CHECKPOINT_AGE_MS:
                following[partition] = (ref, read_ms)
    for partition in sorted({*known, *following}):
        before, after = (
            None if found is None else _state(repository, partition, *found)
            for found in (known.get(partition), following.get(partition))
        )
        yield view_of(before, after)


def known_ms(manifest: Manifest, partition: TopicPartition, ref: PartitionRef) -> int:
    """When a partition was last known to be as a reference says.

    A run does not read a partition again whose files have not changed. It was not looked at if its log
    directory was no source, or if there was a problem.
    """
    sources = {each.directory for each in manifest.sources}
    failed = any(each.partition in (None, partition) for each in manifest.problems)
    if ref.source in sources and not manifest.patterns and not failed:
        return max(ref.read_time_ms, manifest.begin_ms)
    return ref.read_time_ms


def _state(
    repository: Repository, partition: TopicPartition, ref: PartitionRef, read_ms: int
) -> PartitionState:
    return replace(repository.state(partition, ref), read_time_ms=read_ms)
