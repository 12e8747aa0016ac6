"""Reads the batches of a partition from the pieces of a repository."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from typing import BinaryIO, Protocol

from klog.backup.hashing import BackgroundHash
from klog.backup.model import Piece, StoredObject
from klog.backup.moment.view import Part
from klog.backup.packing import reading_ahead
from klog.backup.reading import is_damage
from klog.formats.errors import StorageError
from klog.kernel.columns import BatchTable
from klog.storage.files.chunks import chunks


class PieceSource(Protocol):
    """Where pieces are. Errors are `KlogError`s that name the object."""

    def open_piece(self, piece: Piece) -> BinaryIO:
        """The batches of a piece."""

    def read_stored(self, stored: StoredObject) -> bytes:
        """A small object, checked."""


class Rows:
    """Some batches: rows `first` to before `last` of `table`, scanned from `data`.

    `segment_base_offset` is that of the segment that they are restored to.
    """

    __slots__ = ("data", "first", "last", "segment_base_offset", "table")

    def __init__(
        self, segment_base_offset: int, data: memoryview, table: BatchTable, first: int, last: int
    ) -> None:
        self.segment_base_offset = segment_base_offset
        self.data, self.table = data, table
        self.first, self.last = first, last

    def span(self) -> memoryview:
        """The bytes of the batches."""
        table = self.table
        start = table.position[self.first] - table.origin
        end = table.position[self.last - 1] + table.size[self.last - 1] - table.origin
        return self.data[start:end]


def read_batches(
    source: PieceSource, parts: Iterable[Part], end_offset: int | None = None, *, checked: bool = False
) -> Iterator[Rows]:
    """The batches of parts up to the first one that reaches `end_offset` (None: all), in their order.

    The rows are valid until the next ones are requested. With `checked` every piece that is opened is read to
    its end, and its checksum is compared. Raises `StorageError` for a damaged one.
    """
    for part in parts:
        try:
            ended = yield from _read_part(source, part, end_offset, checked=checked)
        except StorageError as error:
            if not is_damage(error) or error.file == part.piece.name:
                raise
            raise _damaged(part.piece, f"is damaged or missing: {error.what}") from error
        if ended:
            return


def _read_part(
    source: PieceSource, part: Part, end_offset: int | None, *, checked: bool
) -> Generator[Rows, None, bool]:
    """The batches of a part. Returns whether the end was reached."""
    table = BatchTable()
    ended = False
    read_bytes = 0
    size_bytes = part.piece.size_bytes
    with source.open_piece(part.piece) as file, closing(BackgroundHash()) as digest, reading_ahead(file):
        for data in chunks(file, table, keeps_previous=True):
            whole = data[: table.consumed_bytes]
            if checked:
                digest.begin(whole)
            read_bytes += len(whole)
            first, last = _range(table, part.first_offset, end_offset)
            if last > first and not ended:
                yield Rows(part.segment_base_offset, data, table, first, last)
            ended = ended or last < len(table)
            if ended and not checked:
                return True
            digest.wait_for_earlier()  # their buffer is used next
        is_same = not checked or digest.hexdigest() == part.piece.sha256
    if read_bytes != size_bytes or not is_same:
        raise _damaged(part.piece, "is damaged: its batches do not have the checksum of the backup")
    return ended


def _damaged(piece: Piece, what: str) -> StorageError:
    last = piece.end_offset - 1
    return StorageError(
        f"{what}; the partition's offsets {piece.first_offset} to {last} are in it",
        file=piece.name,
        cure="take it from a copy of the repository, or restore other topics with --topic; --skip-damaged,"
        " into an empty directory or new topics, leaves these offsets out",
    )


def _range(table: BatchTable, first_offset: int, end_offset: int | None) -> tuple[int, int]:
    """The rows that begin at `first_offset` and end below `end_offset`."""
    first, last = 0, len(table)
    while first < last and table.last_offset[first] < first_offset:
        first += 1
    if end_offset is not None:
        while last > first and table.last_offset[last - 1] >= end_offset:
            last -= 1
    return first, last
