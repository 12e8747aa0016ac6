"""The decisions of compaction, in columns beside those of `columns`: which records of some batches stay."""

from __future__ import annotations

from array import array


class Selection:
    """The decisions for a RecordTable and its BatchTable.

    `keep` is 1 or 0 for each record. For each batch, `kept` is the number of records that stay, `tombstones`
    the number of tombstones among them, and `last_kept_offset` the offset of the last one (-1: none).
    """

    __slots__ = ("keep", "kept", "last_kept_offset", "tombstones")

    def __init__(self, batches: int) -> None:
        self.keep: array[int] = array("B")
        self.kept: array[int] = array("q", bytes(8 * batches))
        self.tombstones: array[int] = array("q", bytes(8 * batches))
        self.last_kept_offset: array[int] = array("q", (-1,)) * batches
