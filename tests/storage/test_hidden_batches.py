"""A split gives what a consumer gets: no control records, and with read_committed no aborted data."""

from __future__ import annotations

from typing import Any

import pytest

from klog.export.options import ReadOptions
from klog.formats import transaction_index
from klog.formats.constants import CONTROL_BIT, TRANSACTIONAL_BIT
from klog.kernel.columns import BatchTable
from klog.replicas.splits import AbortedRange
from klog.storage.reading.hidden_batches import HiddenBatches
from tests import corpora
from tests.corpora import JsonObject, PartitionDirectory
from tests.export.reading import decoded, field, read, split_of

CONSUMED = [
    partition
    for partition in corpora.partitions()
    if partition.expected_consumer("read_committed") is not None
    or partition.expected_consumer("read_uncommitted") is not None
]


def aborted_of(partition: PartitionDirectory) -> list[AbortedRange]:
    """What the transaction indexes of a partition say."""
    return [
        AbortedRange(entry.producerId, entry.firstOffset, entry.lastOffset)
        for path in partition.files(".txnindex")
        for entry in transaction_index.parse(path.read_bytes())
    ]


def consumed(lines: list[JsonObject]) -> list[dict[str, Any]]:
    return [
        {
            "offset": line["offset"],
            "timestamp": line["timestamp"] * 1000,
            "key": field(line, "key"),
            "value": field(line, "value"),
            "headers": [
                {"key": decoded(key).decode(), "value": decoded(value)}  # type: ignore[union-attr]
                for key, value in line["headers"]
            ]
            or None,
        }
        for line in lines
        if "offset" in line
    ]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("partition", CONSUMED, ids=str)
def test_rows_are_what_a_real_consumer_got_from_the_broker(
    partition: PartitionDirectory, isolation: str
) -> None:
    lines = partition.expected_consumer(isolation)
    if lines is None:
        return
    ends = next(line for line in lines if "endOffset" in line)
    columns = ["offset", "timestamp", "key", "value", "headers"]
    rows = []
    for path in partition.files(".log"):
        split = split_of(
            path,
            first_offset=ends["beginningOffset"],
            end_offset=ends["position"],
            aborted=aborted_of(partition) if isolation == "read_committed" else (),
        )
        found, lost = read(split, ReadOptions((), include_headers=True), columns)
        assert lost == []
        rows += found
    assert rows == consumed(lines)


def table(*rows: tuple[int, int, int, int, int]) -> BatchTable:
    """Batches of (producer id, attributes, base offset, last offset, magic)."""
    found = BatchTable()
    for producer, attributes, base, last, magic in rows:
        found.position.append(0)
        found.producer_id.append(producer)
        found.attributes.append(attributes)
        found.base_offset.append(base)
        found.last_offset.append(last)
        found.magic.append(magic)
    return found


def test_a_batch_is_aborted_by_its_producer_and_its_place() -> None:
    hidden = HiddenBatches([AbortedRange(7, 10, 20), AbortedRange(7, 40, 45), AbortedRange(8, 12, 13)])
    rows = [
        (7, TRANSACTIONAL_BIT, 5, 9, 2),  # before
        (7, TRANSACTIONAL_BIT, 10, 12, 2),
        (9, TRANSACTIONAL_BIT, 13, 13, 2),  # of another producer
        (7, 0, 14, 14, 2),  # outside any transaction
        (7, TRANSACTIONAL_BIT, 15, 19, 2),
        (7, TRANSACTIONAL_BIT | CONTROL_BIT, 20, 20, 2),  # the marker
        (7, TRANSACTIONAL_BIT, 21, 39, 2),  # the next transaction, committed
        (7, TRANSACTIONAL_BIT, 40, 44, 2),
        (8, TRANSACTIONAL_BIT, 46, 47, 2),
    ]
    assert hidden.rows(table(*rows)) == {1, 4, 5, 7}


def test_control_batches_are_hidden_whatever_the_isolation() -> None:
    rows = [
        (1, TRANSACTIONAL_BIT, 0, 0, 2),
        (1, TRANSACTIONAL_BIT | CONTROL_BIT, 1, 1, 2),
        (-1, CONTROL_BIT, 2, 2, 2),
    ]
    assert HiddenBatches([]).rows(table(*rows)) == {1, 2}


def test_the_bits_mean_nothing_before_magic_2() -> None:
    assert HiddenBatches([]).rows(table((-1, CONTROL_BIT, 0, 0, 1))) == set()
