"""Export jobs and the results of their splits, as values that are passed between processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from klog.export.decoders.decoding import RAW, Decoding, RequestedDecoding
from klog.export.deserialise import BadRecords
from klog.export.layout import BY_TOPIC_AND_PARTITION, PartitionBy
from klog.export.options import ReadOptions
from klog.export.outputs import WrittenFile
from klog.export.sources import ReplicaFiles, Source
from klog.export.writers import Format
from klog.replicas.splits import LostRange, Split


@dataclass(frozen=True, slots=True)
class Decodings:
    """How keys and values are decoded: the same in all tasks of a job."""

    key: Decoding = RAW
    value: Decoding = RAW


UNDECODED: Final = Decodings()
RAW_REQUESTED: Final = RequestedDecoding()
_REPLICAS: Final = ReplicaFiles()


@dataclass(frozen=True, slots=True)
class ExportJob:
    """What a job reads (`options`), what it writes, and where (`output`: a path or URI). Picklable.

    `columns` are those to write (None: all that `options` give). `key` and `value` are the decodings that the
    user requested; `klog.export.job_state.begin` resolves them to `decodings`. With `internal_tables`
    internal topics are decoded to separate tables. If a file reaches `target_file_bytes`, the next rows of
    the split go to another one (None: a split is one file). `source` is what `options.paths` lead to.
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
    target_file_bytes: int | None = None
    source: Source = _REPLICAS


@dataclass(frozen=True, slots=True)
class SplitResult:
    """The result of one split.

    Its records are in `files`. Records that do not fit their schema are in `reject_file` if the job rejects
    them; otherwise they are in `files`, and `rows_with_error` counts them. `lost` are ranges that could not
    be read. `repaired` are ranges that are damaged in the chosen replica and were read, at least in part,
    from another one.
    """

    split: Split
    files: tuple[WrittenFile, ...]
    reject_file: WrittenFile | None
    lost: tuple[LostRange, ...]
    rows_with_error: int = 0
    repaired: tuple[LostRange, ...] = ()

    @property
    def rows(self) -> int:
        """Number of records in tables."""
        return sum(file.rows for file in self.files)

    @property
    def rejected(self) -> int:
        """Number of rejected records, which do not fit their schema."""
        return 0 if self.reject_file is None else self.reject_file.rows

    @property
    def all_files(self) -> tuple[WrittenFile, ...]:
        """The files, including that of rejected records."""
        return self.files if self.reject_file is None else (*self.files, self.reject_file)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.all_files)
