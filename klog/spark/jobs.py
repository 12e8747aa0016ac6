"""What an export job is, and what became of each of its splits: the values that processes hand each other."""

from __future__ import annotations

from dataclasses import dataclass

from klog.spark.layout import BY_TOPIC_AND_PARTITION, PartitionBy
from klog.spark.options import ReadOptions
from klog.spark.outputs import WrittenFile
from klog.spark.splits import LostRange, Split
from klog.spark.writers import Format


@dataclass(frozen=True, slots=True)
class ExportJob:
    """What a job writes of what it reads (`options`), and where (`output`: a path or URI).

    `columns` are those to write (None: all that `options` give). Picklable: tasks take it along.
    """

    options: ReadOptions
    output: str
    format: Format = Format.PARQUET
    compression: str = "zstd"
    partition_by: tuple[PartitionBy, ...] = BY_TOPIC_AND_PARTITION
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class SplitResult:
    """What became of a split.

    Its records are in `files`, those that do not fit their schema in `reject_file`; `lost` is what could
    not be read.
    """

    split: Split
    files: tuple[WrittenFile, ...]
    reject_file: WrittenFile | None
    lost: tuple[LostRange, ...]

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
