"""A split gives the rows that Kafka's own reader gives: all magics, codecs, headers and nulls."""

from __future__ import annotations

import pytest

from klog.spark.options import ReadOptions
from klog.spark.schema import METADATA_COLUMNS, arrow_schema
from tests import corpora
from tests.spark.reading import expected_rows, read, split_of

ALL = ReadOptions((), include_headers=True, metadata_columns=METADATA_COLUMNS)
SOUND = [
    partition
    for partition in corpora.partitions()
    if partition.has_expected and not partition.corpus.is_corrupt
]


@pytest.mark.parametrize("partition", SOUND, ids=str)
def test_every_column_of_every_data_record_is_as_kafka_says(partition: corpora.PartitionDirectory) -> None:
    files = partition.files(".log")
    for path in files:
        rows, lost = read(split_of(path), ALL)
        assert rows == expected_rows(partition, path.name)
        assert lost == []
    assert files or not partition.expected_records()


def test_columns_come_in_the_order_asked_for() -> None:
    path = corpora.corpora("k39-txn")[0].log_dir().partition("t-txn-0").files(".log")[0]
    wanted = ["offset", "file", "value"]
    rows, _ = read(split_of(path), ALL, wanted)
    assert rows
    assert [list(row) for row in rows] == [wanted] * len(rows)
    assert arrow_schema(ALL, wanted).names == wanted
