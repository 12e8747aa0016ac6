"""The entries of a transaction index that concern a read are found without reading all of them."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from klog.storage.log.aborted_transactions import aborted_between
from klog.storage.reading.producer_state import AbortedTxn, pack_aborted

ENTRIES = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 20), st.integers(0, 20)), max_size=300)


def index(values: list[tuple[int, int, int]]) -> list[AbortedTxn]:
    """Entries whose markers follow each other; each begins before its marker."""
    made: list[AbortedTxn] = []
    last_offset = 0
    for gap, length, open_for in values:
        last_offset += gap
        first_offset = max(0, last_offset - length)
        made.append(AbortedTxn(7, first_offset, last_offset, max(0, last_offset + 1 - open_for)))
    return made


@given(ENTRIES, st.integers(0, 900), st.integers(0, 900), st.binary(max_size=33))
def test_all_and_only_transactions_that_overlap_the_read_are_found(
    tmp_path_factory, values: list[tuple[int, int, int]], offset: int, length: int, torn: bytes
) -> None:
    entries, upper_offset = index(values), offset + length
    path: Path = tmp_path_factory.mktemp("index") / "0.txnindex"
    path.write_bytes(pack_aborted(entries) + torn)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        found = aborted_between(descriptor, offset, upper_offset)
    finally:
        os.close(descriptor)
    relevant = [txn for txn in entries if txn.last_offset >= offset]
    ends = [number for number, txn in enumerate(relevant) if txn.last_stable_offset >= upper_offset]
    looked_at = relevant[: ends[0] + 1] if ends else relevant
    assert found.is_complete == bool(ends)
    assert found.transactions == [txn for txn in looked_at if txn.first_offset < upper_offset]
