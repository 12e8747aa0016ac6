"""The batch read of the data source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from klog.export.options import ReadOptions
from klog.spark.rows import RowSource, planned_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class KlogReader(DataSourceReader):
    """A batch read, planned once and divided into tasks of even size."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._source = RowSource.of(options, schema)

    def partitions(self) -> list[InputPartition]:
        """The tasks. Raises `UsageError` if no partition is found, and `KlogError` with `failOnDataLoss`."""
        return list(planned_tasks(self._source))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return self._source.rows(partition)
