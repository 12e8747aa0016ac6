"""The export's columns are those of Spark's Kafka source, in names, order and types; then metadata."""

from __future__ import annotations

import pyarrow as pa
import pytest

from klog.export.decoders.types_ddl import parse_type
from klog.export.options import ReadOptions
from klog.export.schema import METADATA_COLUMNS, arrow_schema, column_names, spark_schema_ddl
from klog.formats.errors import UsageError

# What `spark.read.format("kafka").load().schema` and its documentation say.
KAFKA_SOURCE = [
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", "UTC")),
    ("timestampType", pa.int32()),
]
HEADERS = (
    "headers",
    pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
)


def test_the_columns_are_those_of_sparks_kafka_source() -> None:
    assert arrow_schema(ReadOptions(())) == pa.schema(KAFKA_SOURCE)
    assert arrow_schema(ReadOptions((), include_headers=True)) == pa.schema([*KAFKA_SOURCE, HEADERS])


def test_metadata_columns_follow_in_the_order_of_their_list() -> None:
    options = ReadOptions((), metadata_columns=("file", "leaderEpoch"))
    assert column_names(options)[-2:] == ("leaderEpoch", "file")


def test_columns_can_be_chosen_in_any_order() -> None:
    assert arrow_schema(ReadOptions(()), ["offset", "key"]).names == ["offset", "key"]


def test_a_column_that_is_not_asked_for_is_not_there_to_choose() -> None:
    with pytest.raises(UsageError, match="no column 'headers'"):
        arrow_schema(ReadOptions(()), ["headers"])
    with pytest.raises(UsageError, match="no column 'size'"):
        column_names(ReadOptions((), metadata_columns=("size",)))


def test_the_ddl_says_the_same_types() -> None:
    options = ReadOptions((), include_headers=True, metadata_columns=METADATA_COLUMNS)
    assert parse_type(spark_schema_ddl(options)) == pa.struct(list(arrow_schema(options)))
