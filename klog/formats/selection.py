"""Which records of some batches stay: what compaction decides, in columns beside those of `columns`."""

from __future__ import annotations

from array import array


class Selection:
    """Per record (row of a RecordTable) `keep` 1 or 0; per batch (row of a BatchTable) how many are `kept`,
    how many of them are `tombstones`, and the `last_kept_offset` (-1: none).
    """

    __slots__ = ("keep", "kept", "last_kept_offset", "tombstones")

    def __init__(self, batches: int) -> None:
        self.keep: array[int] = array("B")
        self.kept: array[int] = array("q", bytes(8 * batches))
        self.tombstones: array[int] = array("q", bytes(8 * batches))
        self.last_kept_offset: array[int] = array("q", (-1,)) * batches
