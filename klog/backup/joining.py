"""Joins small pieces of a segment to larger ones, so that a restore reads few objects.

Each append of a continuous backup makes a piece. A state of a later run has a joined piece in the place of
several; those stay for the backups that have them, until a prune finds that none is kept.

Pieces are joined when there are many of about one size. So each byte is written again a few times at most.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

from klog.backup.model import PartitionState, Piece
from klog.backup.moment.view import Part
from klog.backup.pieces import PIECE_BYTES, PieceWriter, SegmentPieces
from klog.backup.reading import is_damage
from klog.backup.repository import Repository
from klog.backup.restoring.batches import read_batches
from klog.backup.restoring.selection import RepositoryPieces
from klog.formats.errors import StorageError

_LEAST_GROUPS: Final = 16
_GROUPS_SHARE: Final = 4


@dataclass(frozen=True, slots=True)
class JoinRules:
    """At least `fewest` consecutive pieces that are all smaller than one of `limits_bytes` are joined, `most`
    at a time, up to `largest_bytes`.
    """

    fewest: int = 16
    most: int = 64
    limits_bytes: tuple[int, ...] = (4 << 10, 64 << 10, 1 << 20, 16 << 20)
    largest_bytes: int = PIECE_BYTES

    def due(self, pieces: Sequence[Piece]) -> tuple[int, int] | None:
        """The first of the pieces to join, and the end."""
        for limit in self.limits_bytes:
            first = 0
            for end in range(1, len(pieces) + 1):
                if pieces[end - 1].size_bytes >= limit:
                    first = end
                    continue
                if end < len(pieces) and pieces[end].size_bytes < limit and _join(*pieces[end - 1 : end + 1]):
                    continue
                if end - first >= self.fewest:
                    return self._bounded(pieces, first, end)
                first = end
        return None

    def _bounded(self, pieces: Sequence[Piece], first: int, end: int) -> tuple[int, int]:
        size_bytes = 0
        for at in range(first, min(end, first + self.most)):
            size_bytes += pieces[at].size_bytes
            if size_bytes > self.largest_bytes:
                return first, at
        return first, min(end, first + self.most)


JOIN_RULES: Final = JoinRules()
NEVER: Final = JoinRules(limits_bytes=())


def _join(piece: Piece, following: Piece) -> bool:
    """Whether no byte and no other segment is between two pieces."""
    return (
        piece.segment_base_offset == following.segment_base_offset
        and piece.start_bytes + piece.size_bytes == following.start_bytes
    )


class Joiner:
    """Joins pieces in the states that a run has made.

    One group of a partition is joined at a time, and so many of all partitions in a run that those of many
    partitions, which are due at the same time, are spread over several runs. `partitions` is how many the
    run has read. Several threads may call.
    """

    def __init__(
        self, repository: Repository, writer: PieceWriter, rules: JoinRules, partitions: int
    ) -> None:
        self._repository = repository
        self._writer = writer
        self._rules = rules
        self._left = max(_LEAST_GROUPS, partitions // _GROUPS_SHARE)
        self._lock = threading.Lock()

    def joined(
        self, state: PartitionState, previous: PartitionState, on_damage: Callable[[StorageError], object]
    ) -> PartitionState:
        """The state with fewer pieces, if that is due. Those are joined that the `previous` one has, too: the
        others may not be stored yet. What is damaged stays as it is.

        Raises `StorageError` if the repository cannot be read or written.
        """
        stored = set(previous.pieces)
        due = self._rules.due(list(takewhile(stored.__contains__, state.pieces)))
        if due is None or not self._take():
            return state
        first, end = due
        try:
            made = self._written(state, state.pieces[first:end])
        except StorageError as error:
            if not is_damage(error):
                raise
            on_damage(error)
            return state
        return replace(state, pieces=(*state.pieces[:first], *made, *state.pieces[end:]))

    def _take(self) -> bool:
        with self._lock:
            self._left -= 1
            return self._left >= 0

    def _written(self, state: PartitionState, pieces: Sequence[Piece]) -> Sequence[Piece]:
        first = pieces[0]
        made = SegmentPieces(
            self._writer, state.partition, first.segment_base_offset, first.first_offset, first.start_bytes
        )
        parts = [Part(piece, piece.segment_base_offset, 0) for piece in pieces]
        try:
            for rows in read_batches(RepositoryPieces(self._repository), parts, checked=True):
                made.add(rows.data, rows.table, rows.first, rows.last)
            made.finish_piece()
        finally:
            made.discard()
        return made.pieces
