"""The data source `spark.read.format("klog")`: log directories as rows, with the schema of Spark's Kafka
source.

It uses PySpark's Python Data Source API (4.0 and newer). Where klog is installed, Spark finds the source by
itself (package `pyspark_klog`); a job that ships klog with `--py-files` calls `register(spark)` once. The
planner runs in a Python worker beside the driver. Each task reads its splits to Arrow in a worker of its
executor.

The API does not tell the source which columns a query needs, so all columns go to the JVM, unless the reader
gets a schema with fewer: `spark.read.format("klog").schema("topic STRING, offset BIGINT")`.
`klog.export.planner` and `klog.export.reader` do the reading.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader

from klog.export.options import LATEST, Edge, ReadOptions
from klog.export.options_parsing import ignored_options, read_options
from klog.formats.errors import UsageError
from klog.kernel.kernel import slowness
from klog.spark.batch_reader import KlogReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

_log = logging.getLogger("klog.spark")

NAME: Final = "klog"
PUSH_FILTERS: Final = "pushFilters"
MAX_OFFSETS: Final = "maxOffsetsPerTrigger"


def register(spark: SparkSession) -> None:
    """Register `format("klog")` in a session. Needed only if klog is shipped and not installed.

    Raises `UsageError` if the Python of Spark's workers on this machine cannot import klog.
    """
    from klog.spark.worker_python import require_klog

    require_klog(spark.sparkContext)
    spark.dataSource.register(KlogDataSource)


class KlogDataSource(DataSource):
    """The data source `klog`: batch and streaming reads."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return NAME

    def schema(self) -> str:
        """The columns of Spark's Kafka source, and the headers and metadata columns that the options
        request."""
        from klog.export.schema import spark_schema_ddl

        return spark_schema_ddl(self._options(own=(PUSH_FILTERS, MAX_OFFSETS)))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the current records."""
        self._tell_driver()
        reader = _filtering_reader() if _is_true(self.options, PUSH_FILTERS) else KlogReader
        return reader(self._options(own=(PUSH_FILTERS,)), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """A reader that follows directories as they grow."""
        self._tell_driver()
        return _stream_reader(self._options(own=(MAX_OFFSETS,)), schema, self.options)

    def _tell_driver(self) -> None:
        """Log what concerns the whole query: readers are made in a worker beside the driver, whose stderr is
        the driver's.

        Options of Spark's Kafka source that have no meaning here are ignored, so that queries need no change.
        """
        if (slow := slowness()) is not None:
            _log.warning("%s", slow)
        ignored = ignored_options(self.options)
        if ignored:
            _log.warning(
                "options without meaning for segments are ignored: %s (no broker is asked)",
                ", ".join(sorted(ignored)),
            )

    def _options(self, own: Sequence[str]) -> ReadOptions:
        """The options of reading; `own` are options of the source itself."""
        ignored = {"paths", *(name.lower() for name in own)}
        given = {name: value for name, value in self.options.items() if name.lower() not in ignored}
        # Spark passes `load(["a", "b"])` as one option, in JSON.
        return read_options(given, json.loads(self.options.get("paths", "[]")))


def _stream_reader(
    options: ReadOptions, schema: StructType, given: Mapping[str, str]
) -> DataSourceStreamReader:
    try:
        from klog.spark.stream import KlogStreamReader
    except ImportError:
        raise UsageError(
            "this PySpark has no admission control for streams", cure="use PySpark 4.2 or newer"
        ) from None
    if not any(name.lower().startswith("starting") for name in given):
        # As in Spark's Kafka source: a batch reads all records, a stream those that follow.
        options = replace(options, starting=Edge(LATEST))
    text = given.get(MAX_OFFSETS)
    if text is not None and not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise UsageError(f"option {MAX_OFFSETS} is {text!r}", cure="give a number from 1 on")
    return KlogStreamReader(options, schema, None if text is None else int(text))


def _is_true(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").strip().lower()
    if text not in {"true", "false"}:
        raise UsageError(f"option {name} is {text!r}", cure="give true or false")
    return text == "true"


def _filtering_reader() -> type[KlogReader]:
    """The reader that applies filters itself.

    It is a separate class, because Spark rejects each reader that can apply filters if its setting for that
    is off.
    """
    try:
        from klog.spark.filters import FilteringReader
    except ImportError:
        raise UsageError(
            f"this PySpark hands no filters to data sources, and {PUSH_FILTERS} is set",
            cure="use PySpark 4.1 or newer, or leave the option out",
        ) from None
    return FilteringReader
