"""Defines the columns of an export: those of Spark's Kafka source, then metadata columns on request.

Names, order, types and meanings of the first eight are those of Spark's source (Structured Streaming + Kafka
Integration Guide), with the values that it actually gives: `headers` is null for a record without headers; a
record without a timestamp (magic 0) has Kafka's -1, one millisecond before 1970; `timestampType` is 0
(CreateTime), 1 (LogAppendTime) or -1 (none). Spark's source fails on a timestamp that is too far from 1970
for microseconds in 64 bits; here it is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from klog.export.options import ReadOptions
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

KAFKA_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The columns that Spark's Kafka source always has."""

HEADERS: Final = "headers"
"""The column that it has only with `includeHeaders`."""

METADATA_COLUMNS: Final = (
    "leaderEpoch",
    "producerId",
    "producerEpoch",
    "sequence",
    "isTransactional",
    "codec",
    "batchPosition",
    "file",
)
"""Columns that only the log has; their value is -1 if the format or the producer does not say."""

_DDL_TYPES: Final = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "leaderEpoch": "INT",
    "producerId": "BIGINT",
    "producerEpoch": "SMALLINT",
    "sequence": "INT",
    "isTransactional": "BOOLEAN",
    "codec": "STRING",
    "batchPosition": "BIGINT",
    "file": "STRING",
}


def column_names(options: ReadOptions) -> tuple[str, ...]:
    """All columns that `options` request, in their order. Raises UsageError for unknown metadata columns."""
    check_columns(options.metadata_columns, METADATA_COLUMNS)
    headers = (HEADERS,) if options.include_headers else ()
    wanted = set(options.metadata_columns)
    return (*KAFKA_COLUMNS, *headers, *(name for name in METADATA_COLUMNS if name in wanted))


def check_columns(columns: Iterable[str], known: Sequence[str]) -> None:
    """Raises UsageError for a name that is not in `known`."""
    for name in columns:
        if name not in known:
            raise UsageError(f"no column {name!r}", cure=f"one of {', '.join(known)}")


def arrow_schema(options: ReadOptions, columns: Sequence[str] | None = None) -> pa.Schema:
    """The Arrow schema of all columns, or of `columns` in their order. Raises UsageError for unknown ones."""
    import pyarrow as pa

    names = column_names(options)
    if columns is not None:
        check_columns(columns, names)
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "BINARY": pa.binary(),
        "STRING": pa.string(),
        "SMALLINT": pa.int16(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "BOOLEAN": pa.bool_(),
        "TIMESTAMP": pa.timestamp("us", "UTC"),
        _DDL_TYPES[HEADERS]: pa.list_(pa.field("element", header)),
    }
    return pa.schema([pa.field(name, types[_DDL_TYPES[name]]) for name in (columns or names)])


def spark_schema_ddl(options: ReadOptions) -> str:
    """The same schema as DDL of Spark (`StructType.fromDDL`). Raises UsageError."""
    return ", ".join(f"{name} {_DDL_TYPES[name]}" for name in column_names(options))
