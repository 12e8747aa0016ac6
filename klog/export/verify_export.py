"""Compares the output of an export with the segments, offset by offset, for `klog export --verify`.

It reads the offsets of each split and of its files again. Each record of the segments must be in the tables
or among the rejected records exactly once, and no other record may be there. It also checks the checksum of
each file, and that the output has no data files that the manifest does not list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from klog.export.job_state import unknown_files
from klog.export.open_output import open_output
from klog.export.outputs import Output, WrittenFile
from klog.export.split_export import ExportJob, SplitResult
from klog.export.tables import table_of
from klog.formats.errors import KlogError, StorageError

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN: Final = 5
_READ_BYTES: Final = 1 << 20
_CODECS: Final = {"l.gz": "gzip", ".zst": "zstd"}


@dataclass(frozen=True, slots=True)
class Finding:
    """An error in the output."""

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


def verify_split(result: SplitResult, job: ExportJob) -> tuple[Finding, ...]:
    """The errors in the files of a split. Raises `StorageError` if the segments can no longer be read."""
    output = open_output(job.output)
    findings: list[Finding] = []
    held: list[Any] = []
    table = table_of(result.split, job)
    for file in result.all_files:
        # Rejected records have all columns, as they were read.
        rejected = file is result.reject_file
        column = "offset" if rejected else table.offset_column
        try:
            held.append(
                _offsets_of(file, output, column if rejected or table.has_offsets else None, findings)
            )
        except KlogError as error:
            findings.append(Finding(file.name, error.what))
    if not findings:
        findings += _compare(result, job, held)
    return tuple(findings)


def verify_names(results: Iterable[SplitResult], output: Output) -> tuple[Finding, ...]:
    """An error for each data file that no split has written."""
    return tuple(Finding(name, "belongs to no split") for name in sorted(unknown_files(output, results)))


def _compare(result: SplitResult, job: ExportJob, held: list[pa.ChunkedArray | int]) -> Iterator[Finding]:
    import pyarrow as pa

    expected = _expected(result, job)
    place = f"split {result.split.number} ({result.split.topic_partition})"
    counts = [len(offsets) if isinstance(offsets, pa.ChunkedArray) else offsets for offsets in held]
    if sum(counts) != len(expected):
        yield Finding(place, f"{sum(counts)} records are in the output, {len(expected)} in the segment")
    arrays = [offsets for offsets in held if isinstance(offsets, pa.ChunkedArray)]
    if len(arrays) < len(held):
        return  # the offsets were not exported, so the records can only be counted
    found = pa.chunked_array([chunk for array in arrays for chunk in array.chunks], pa.int64())
    for what, more, fewer in (("missing", expected, found), ("too many", found, expected)):
        numbers = _difference(more, fewer)
        if numbers:
            yield Finding(place, f"{len(numbers)} offsets {what}: {_listed(numbers)}")


def _expected(result: SplitResult, job: ExportJob) -> pa.ChunkedArray:
    """The offsets of the split's records in the segment."""
    import pyarrow as pa

    from klog.export.reader import read_split

    batches = read_split(
        result.split, job.options, columns=["offset"], on_lost=lambda _: None, open_file=job.source.open
    )
    return pa.chunked_array([batch.column("offset") for batch in batches], pa.int64())


def _difference(more: pa.ChunkedArray, fewer: pa.ChunkedArray) -> list[int]:
    """The offsets that are in `more` more often than in `fewer`."""
    if more.equals(fewer):
        return []
    counts: dict[int, int] = {}
    for array, step in ((more, 1), (fewer, -1)):
        for offset in array.to_pylist():
            counts[offset] = counts.get(offset, 0) + step
    return sorted(offset for offset, count in counts.items() if count > 0)


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN]))
    return shown + (", ..." if len(numbers) > _SHOWN else "")


def _offsets_of(
    file: WrittenFile, output: Output, column: str | None, findings: list[Finding]
) -> pa.ChunkedArray | int:
    """The offsets in a file, or only their number if it has no such column."""
    import pyarrow as pa

    with output.open(file.name) as opened:
        if _checksum(opened) != file.checksum:
            findings.append(Finding(file.name, "its checksum is wrong"))
            return 0
        opened.seek(0)
        if column is None:
            return file.rows
        try:
            return _column(opened, file.name, column)
        except (pa.ArrowException, OSError, KeyError) as error:
            raise StorageError(f"cannot be read: {error}", file=file.name) from error


def _checksum(opened: BinaryIO) -> str:
    import xxhash

    digest = xxhash.xxh3_128()
    while piece := opened.read(_READ_BYTES):
        digest.update(piece)
    return str(digest.hexdigest())


def _column(opened: BinaryIO, name: str, column: str) -> pa.ChunkedArray:
    import pyarrow as pa

    if name.endswith(".parquet"):
        from pyarrow import parquet as pq

        # One column needs no threads, and threads that Arrow is still starting abort a process that ends.
        return pq.ParquetFile(opened).read(columns=[column], use_threads=False).column(column)
    if name.endswith(".orc"):
        from pyarrow import orc

        return orc.ORCFile(opened).read(columns=[column]).column(column)
    from pyarrow import json as pj

    stream = pa.CompressedInputStream(opened, _CODECS[name[-4:]]) if name[-4:] in _CODECS else opened
    options = pj.ParseOptions(
        explicit_schema=pa.schema([(column, pa.int64())]), unexpected_field_behavior="ignore"
    )
    return pj.read_json(stream, parse_options=options).column(column)
