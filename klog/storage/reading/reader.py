"""One pass over a segment: chunks of batch headers, and their records decoded as columns.

Every reader of records uses it (library, dump, Arrow, Parquet, summary). What cannot be read is passed to
`on_problem` as an error, and reading continues after it; an `on_problem` that raises stops the pass
(`raise_problem`). A batch with a bad checksum is reported, and its records come as far as they decode. The
caller decides whether to use them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import BinaryIO, Final

from klog.formats.checksums import Bytes
from klog.formats.compression import DEFAULT_LIMIT_BYTES, decompress
from klog.formats.constants import CODEC_MASK
from klog.formats.errors import CorruptRecordError, KlogError, UnsupportedFormatError
from klog.kernel import kernel
from klog.kernel.columns import OFFSET_UNKNOWN, BatchTable, RecordTable
from klog.storage.files.chunks import chunks
from klog.storage.reading.position_search import start_position
from klog.storage.reading.select import Bounds, compact
from klog.storage.reading.tail import NEWEST_MAGIC, RECOVER_CUTS, tail_problem

OnProblem = Callable[[KlogError], None]

_EVERYTHING: Final = Bounds()


def raise_problem(problem: KlogError) -> None:
    """The `on_problem` of strict readers."""
    raise problem


@dataclass(slots=True, eq=False)
class SegmentReader:
    """A pass over the open segment `file`; its name says `path` and `base_offset` (None: unknown).

    `batches` holds the headers of the current chunk, `records` the records of the current run. Both are
    reused, so take what you need before asking for the next. `verify` checks checksums and the order of
    offsets.
    """

    file: BinaryIO
    path: str
    base_offset: int | None = None
    _: KW_ONLY
    bounds: Bounds = _EVERYTHING
    verify: bool = True
    on_problem: OnProblem = raise_problem
    max_decompressed_bytes: int = DEFAULT_LIMIT_BYTES
    batches: BatchTable = field(default_factory=BatchTable, init=False)
    records: RecordTable = field(default_factory=RecordTable, init=False)
    _next_offset: int = field(init=False)

    def __post_init__(self) -> None:
        self._next_offset = -1 if self.base_offset is None else self.base_offset

    def chunks(self) -> Iterator[memoryview]:
        """Buffers of whole batches; `batches` is filled for each. The last may hold none.

        Starts where the bounds allow it. Ends after the bounds, at the end of the file, or where no further
        batch can be found. The last case and an incomplete batch at the end are problems.
        """
        table = self.batches
        try:
            start = start_position(self.file, self.path, self.base_offset, self.bounds)
            if start:
                self._next_offset = -1
            for data in chunks(self.file, table, start_bytes=start):
                self._check(data)
                ends = self.bounds.ends_before(table)
                yield data
                if ends:
                    return
                rest = data[table.consumed_bytes :]
        except KlogError as error:
            # Reading fails (a bad disk, a damaged gzipped copy). What came before is valid.
            self.on_problem(error.at(self.path))
            return
        problem = tail_problem(table, rest)
        if problem is not None:
            self.on_problem(problem.at(self.path))

    def runs(self) -> Iterator[Bytes]:
        """Payload buffers; `records` is filled for each with spans into it, their batches are in `batches`.

        Only records within the bounds come. A run is one compressed batch, or all uncompressed batches that
        are adjacent in a chunk.
        """
        for data in self.chunks():
            yield from self.decode(data)

    def decode(self, data: Bytes) -> Iterator[Bytes]:
        """The runs of the current chunk."""
        batches = self.batches
        by_place = self.bounds.by_place
        first = None
        for row, attributes in enumerate(batches.attributes):
            compressed = (
                attributes & CODEC_MASK and batches.count[row]
            )  # a batch without records has no compressed block
            wanted = not by_place or self.bounds.may_hold(batches, row)
            if wanted and not compressed:
                first = row if first is None else first
                continue
            if first is not None:
                yield from self._plain(data, first, row)
                first = None
            if wanted:
                yield from self._compressed(data, row)
        if first is not None:
            yield from self._plain(data, first, len(batches))

    def decode_rows(self, data: Bytes, rows: Iterable[int]) -> Iterator[Bytes]:
        """The records of single batches of the current chunk, one run a batch."""
        for row in rows:
            if self.batches.attributes[row] & CODEC_MASK and self.batches.count[row]:
                yield from self._compressed(data, row)
            else:
                yield from self._plain(data, row, row + 1)

    def drop_unwanted(self) -> None:
        """Keep only those `batches` that may hold a wanted record."""
        if self.bounds.by_place:
            rows = range(len(self.batches))
            compact(self.batches, [row for row in rows if self.bounds.may_hold(self.batches, row)])

    def _plain(self, data: Bytes, first: int, last: int) -> Iterator[Bytes]:
        records = self.records
        records.clear()
        while first < last:
            first = kernel.decode(data, self.batches, first, last, records)
            if first < last:
                self._report_undecoded(first)
                first += 1
        if self.bounds.by_place:
            self.bounds.keep(records)
        if len(records):
            yield data

    def _compressed(self, data: Bytes, row: int) -> Iterator[Bytes]:
        batches, records = self.batches, self.records
        records.clear()
        start, size = kernel.payload_span(data, batches, row)
        try:
            if size < 0:
                raise CorruptRecordError("compressed message has no value")
            payload = decompress(
                batches.attributes[row] & CODEC_MASK,
                memoryview(data)[start : start + size],
                magic=batches.magic[row],
                limit_bytes=self.max_decompressed_bytes,
            )
        except KlogError as error:
            self.on_problem(error.at(self.path, batches.position[row]))
            return
        if not kernel.decode_payload(payload, batches, row, records):
            self._report_undecoded(row)
        if self.verify and 0 in records.valid:
            self._report_inner(row)
        if self.bounds.by_place:
            self.bounds.keep(records)
        if len(records):
            yield payload

    def _report_undecoded(self, row: int) -> None:
        what = self.records.problem or "batch does not decode"
        self.records.problem = None
        self.on_problem(
            CorruptRecordError(
                what,
                file=self.path,
                position_bytes=self.batches.position[row],
                cure="the records before are read; those after it in this batch cannot be found",
            )
        )

    def _report_inner(self, row: int) -> None:
        records = self.records
        bad = [offset for offset, valid in zip(records.offset, records.valid, strict=True) if not valid]
        self.on_problem(
            CorruptRecordError(
                f"message at offset {bad[0]} in a compressed set fails its checksum ({len(bad)} in this set)",
                file=self.path,
                position_bytes=self.batches.position[row],
                cure="its key or value may be damaged",
            )
        )

    def _check(self, data: Bytes) -> None:
        table = self.batches
        if (len(table) and max(table.magic) > NEWEST_MAGIC) or (len(table) and min(table.magic) < 0):
            self._report_magic()
        if not self.verify:
            return
        if kernel.verify(data, table):
            self._report_checksums()
        for row, last in enumerate(table.last_offset):
            base = table.base_offset[row]
            if (last if base == OFFSET_UNKNOWN else base) < self._next_offset:
                self._report_order(row)
            self._next_offset = last + 1

    def _report_magic(self) -> None:
        for row, magic in enumerate(self.batches.magic):
            if not 0 <= magic <= NEWEST_MAGIC:
                problem = UnsupportedFormatError(
                    f"batch has magic {magic}, known are 0 to {NEWEST_MAGIC}",
                    cure="read as the nearest known one, as Kafka's reader does",
                )
                self.on_problem(problem.at(self.path, self.batches.position[row]))

    def _report_checksums(self) -> None:
        table = self.batches
        for row, valid in enumerate(table.valid):
            if not valid:
                what = (
                    f"batch with offsets {table.base_offset[row]} to {table.last_offset[row]} "
                    f"fails its checksum (stored {table.crc[row]}, computed {table.computed_crc[row]})"
                )
                problem = CorruptRecordError(what, cure=RECOVER_CUTS)
                self.on_problem(problem.at(self.path, table.position[row]))

    def _report_order(self, row: int) -> None:
        base = self.batches.base_offset[row]
        offset = self.batches.last_offset[row] if base == OFFSET_UNKNOWN else base
        problem = CorruptRecordError(
            f"batch starts at offset {offset} where at least {self._next_offset} is due",
            cure="the offset was damaged (magic 2 checksums do not cover it) or the file is misnamed",
        )
        self.on_problem(problem.at(self.path, self.batches.position[row]))
