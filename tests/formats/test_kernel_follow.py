"""What a follower has to know of fetched batches, from both kernels."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats.errors import UsageError
from klog.kernel import _pykernel, kernel
from klog.kernel.columns import BatchTable, FollowedBatches

KERNELS = [pytest.param(_pykernel, id="python"), pytest.param(kernel, id=kernel.IMPLEMENTATION)]
TRANSACTIONAL, CONTROL = 0x10, 0x20


def table_of(rows: list[dict[str, int]]) -> BatchTable:
    """A table of batches with these fields, each of one record after the one before."""
    table = BatchTable()
    for number, row in enumerate(rows):
        fields = dict.fromkeys(BatchTable.COLUMNS, 0) | {
            "base_offset": number,
            "last_offset": number,
            "magic": 2,
            "producer_id": -1,
            "valid": 1,
        }
        for name, value in (fields | row).items():
            getattr(table, name).append(value)
    return table


def followed(module: ModuleType, rows: list[dict[str, int]], end: int = 0, epoch: int = 9) -> tuple:
    found = FollowedBatches()
    module.follow(table_of(rows), end, epoch, found)
    epochs, producers = found.epochs.tolist(), found.producers.tolist()
    return found.rows, found.is_plain, found.max_timestamp, epochs, producers


ROWS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "base_offset": st.integers(0, 40),
            "last_offset": st.integers(0, 40),
            "leader_epoch": st.sampled_from([-1, 0, 0, 0, 1, 1, 10]),
            "magic": st.sampled_from([2, 2, 2, 2, 2, 2, 1]),
            "valid": st.sampled_from([1, 1, 1, 1, 1, 1, 0]),
            "producer_id": st.integers(-1, 3) | st.integers(0, 1 << 62),
            "producer_epoch": st.integers(0, 2),
            "attributes": st.sampled_from([0, 0, TRANSACTIONAL, CONTROL | TRANSACTIONAL]),
            "max_timestamp": st.integers(-(1 << 63), (1 << 63) - 1),
        },
    ),
    max_size=40,
)


@given(rows=ROWS, end=st.integers(0, 3), epoch=st.integers(0, 9))
def test_both_kernels_find_the_same(rows: list[dict[str, int]], end: int, epoch: int) -> None:
    assert followed(kernel, rows, end, epoch) == followed(_pykernel, rows, end, epoch)


@given(ids=st.lists(st.integers(0, 90), min_size=100, max_size=200), kinds=st.integers(0, 3))
def test_both_kernels_find_the_same_of_many_producers(ids: list[int], kinds: int) -> None:
    attributes = (0, TRANSACTIONAL, CONTROL, TRANSACTIONAL | CONTROL)
    rows = [{"producer_id": each, "attributes": attributes[each % (kinds + 1)]} for each in ids]
    assert followed(kernel, rows) == followed(_pykernel, rows)


@pytest.mark.parametrize("module", KERNELS)
def test_the_last_five_batches_of_a_producer_matter_and_the_first(module: ModuleType) -> None:
    rows = [{"producer_id": 1, "producer_epoch": 0}] * 9
    assert followed(module, rows)[4] == [0, 4, 5, 6, 7, 8]
    rows[8] = {"producer_id": 1, "producer_epoch": 1}
    assert followed(module, rows)[4] == [0, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("module", KERNELS)
def test_markers_matter_and_the_first_batch_of_a_transaction(module: ModuleType) -> None:
    data = {"producer_id": 1, "attributes": TRANSACTIONAL}
    marker = {"producer_id": 1, "attributes": TRANSACTIONAL | CONTROL}
    rows = [*[data] * 8, marker, *[data] * 8, marker, *[data] * 6]
    assert followed(module, rows)[4] == [0, 8, 9, 17, 18, 19, 20, 21, 22, 23]


@pytest.mark.parametrize("module", KERNELS)
def test_a_new_epoch_is_named_once_with_its_first_offset(module: ModuleType) -> None:
    rows = [{"leader_epoch": each} for each in (2, 2, 3, 3, -1, 4)]
    assert followed(module, rows)[3] == [2, 0, 3, 2, -1, 4, 4, 5]


@pytest.mark.parametrize("module", KERNELS)
def test_a_table_that_was_not_verified_is_refused(module: ModuleType) -> None:
    table = table_of([{}])
    del table.valid[:]
    with pytest.raises(UsageError, match="not verified"):
        module.follow(table, 0, 0, FollowedBatches())
