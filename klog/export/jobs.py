"""What an export job is, and what became of each of its splits: the values that processes hand each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from klog.export.decoders.decoding import RAW, Decoding, RequestedDecoding
from klog.export.deserialise import BadRecords
from klog.export.layout import BY_TOPIC_AND_PARTITION, PartitionBy
from klog.export.options import ReadOptions
from klog.export.outputs import WrittenFile
from klog.export.splits import LostRange, Split
from klog.export.writers import Format


@dataclass(frozen=True, slots=True)
class Decodings:
    """How keys and values are decoded, current_segments for all tasks of a job."""

    key: Decoding = RAW
    value: Decoding = RAW


UNDECODED: Final = Decodings()
RAW_REQUESTED: Final = RequestedDecoding()


@dataclass(frozen=True, slots=True)
class ExportJob:
    """What a job writes of what it reads (`options`), and where (`output`: a path or URI).

    `columns` are those to write (None: all that `options` give). `key` and `value` are what the user asked
    for; `decodings` what that comes to, which `klog.export.job_state.begin` finds out. With `internal_tables`
    internal topics are decoded to tables of their own. Picklable: tasks take it along.
    """

    options: ReadOptions
    output: str
    format: Format = Format.PARQUET
    compression: str = "zstd"
    partition_by: tuple[PartitionBy, ...] = BY_TOPIC_AND_PARTITION
    columns: tuple[str, ...] | None = None
    key: RequestedDecoding = RAW_REQUESTED
    value: RequestedDecoding = RAW_REQUESTED
    bad_records: BadRecords = BadRecords.COLUMN
    decodings: Decodings = UNDECODED
    internal_tables: bool = False


@dataclass(frozen=True, slots=True)
class SplitResult:
    """What became of a split.

    Its records are in `files`, or in `reject_file` where they do not fit their schema and are not wanted
    among the others; `rows_with_error` is how many of those in `files` do not fit. `lost` is what could not
    be read, `repaired` what is damaged in the replica that was chosen and was read, at least in part, from
    another.
    """

    split: Split
    files: tuple[WrittenFile, ...]
    reject_file: WrittenFile | None
    lost: tuple[LostRange, ...]
    rows_with_error: int = 0
    repaired: tuple[LostRange, ...] = ()

    @property
    def rows(self) -> int:
        """Records in tables."""
        return sum(file.rows for file in self.files)

    @property
    def rejected(self) -> int:
        """Records that do not fit their schema."""
        return 0 if self.reject_file is None else self.reject_file.rows

    @property
    def all_files(self) -> tuple[WrittenFile, ...]:
        """The files, that of bad records included."""
        return self.files if self.reject_file is None else (*self.files, self.reject_file)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.all_files)
