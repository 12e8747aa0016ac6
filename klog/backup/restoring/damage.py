"""Leaves out what is damaged or missing in a repository, so that all the rest comes back.

A partition has a gap then, as a compacted log has: Kafka and klog open it without recovery, and consumers go
on behind it. `klog.backup.moment` ends transactions that are open before a gap with markers in it, as their
own may be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Never

from klog.backup.model import Manifest, Piece
from klog.backup.moment.values import Gap
from klog.backup.moment.view import PartitionView
from klog.backup.reading import is_damage, piece_bytes
from klog.backup.repository import Repository
from klog.formats.errors import KlogError, StorageError
from klog.formats.names import TopicPartition
from klog.jobs.threads import side_by_side


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An object that is left out, and what it held: a range of offsets, or (`gap` is None) the `subject`."""

    partition: TopicPartition | None
    what: KlogError
    gap: Gap | None = None
    subject: str = "the producer snapshot"

    def __str__(self) -> str:
        place = "" if self.partition is None else f"{self.partition}: "
        if self.gap is None:
            return f"{place}{self.subject} is left out: {self.what}"
        return (
            f"{place}the offsets {self.gap.first_offset} to {self.gap.end_offset - 1} are lost: {self.what}"
        )


OnDamage = Callable[[LeftOut], object]


def refuse(left_out: LeftOut) -> Never:
    """Leave nothing out. Raises `KlogError`."""
    raise left_out.what


def without_damaged(
    repository: Repository,
    views: Sequence[PartitionView],
    jobs: int,
    on_bytes: Callable[[int], object] = lambda _bytes: None,
) -> tuple[list[PartitionView], list[LeftOut]]:
    """The logs without what is damaged. All pieces are read for that. Raises `StorageError` if the repository
    cannot be reached.
    """
    checked = list(side_by_side(jobs, lambda view: _checked(repository, view, on_bytes), views))
    return [view for view, _ in checked], [each for _, left_out in checked for each in left_out]


def without_damaged_metadata(repository: Repository, manifest: Manifest, on_damage: OnDamage) -> Manifest:
    """The backup without the cluster's metadata, if they are damaged. Raises `StorageError`."""
    if manifest.metadata is None:
        return manifest
    try:
        repository.read_stored(manifest.metadata)
    except StorageError as error:
        if not is_damage(error):
            raise
        on_damage(LeftOut(None, error, subject="the metadata of the cluster"))
        return replace(manifest, metadata=None)
    return manifest


def _checked(
    repository: Repository, view: PartitionView, on_bytes: Callable[[int], object]
) -> tuple[PartitionView, list[LeftOut]]:
    left_out = []
    parts = []
    gaps: list[Gap] = []
    for part in view.parts:
        problem = _problem(repository, part.piece, on_bytes)
        if problem is None:
            parts.append(part)
            continue
        gap = Gap(max(part.piece.first_offset, part.first_offset), part.piece.end_offset)
        left_out.append(LeftOut(view.partition, problem, gap))
        if gaps and gaps[-1].end_offset == gap.first_offset:
            gap = Gap(gaps.pop().first_offset, gap.end_offset)
        gaps.append(gap)
    view = replace(view, parts=tuple(parts), gaps=tuple(gaps))
    if view.snapshot is not None:
        try:
            repository.read_stored(view.snapshot.stored)
        except StorageError as error:
            if not is_damage(error):
                raise
            left_out.append(LeftOut(view.partition, error))
            view = replace(view, snapshot=None)
    return view, left_out


def _problem(repository: Repository, piece: Piece, on_bytes: Callable[[int], object]) -> StorageError | None:
    try:
        for data in piece_bytes(repository, piece):
            on_bytes(len(data))
    except StorageError as error:
        if not is_damage(error):
            raise
        return error
    return None
