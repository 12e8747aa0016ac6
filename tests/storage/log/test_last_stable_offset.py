"""Whatever is written, cut and loaded again: a read_committed consumer sees what a simple model says.

The model keeps the batches of the log and replays them each time. The log keeps the first offsets of
transactions, snapshots and transaction indexes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats import record_batch
from klog.formats.record_batch import records
from klog.storage.log.append_values import Origin
from klog.storage.log.partition_log import PartitionLog
from tests.storage.log.building import (
    append,
    batch,
    bytes_of,
    idempotent,
    marker,
    new_log,
    reload,
    transactional,
)

NOBODY = -1
CONFIGS = {"segment.bytes": "600", "index.interval.bytes": "90", "segment.index.bytes": "120"}


class Written(NamedTuple):
    """One batch of the log. `commit` is None for data."""

    first_offset: int
    last_offset: int
    producer: int
    commit: bool | None = None
    values: tuple[bytes, ...] = ()


@dataclass
class Model:
    """What a log holds, and how far it is replicated."""

    batches: list[Written] = field(default_factory=list)
    high_watermark: int = 0

    def transactions(self) -> Iterator[tuple[Written, Written | None]]:
        """The first batch of every transaction, and its marker if it has one."""
        begun: dict[int, Written] = {}
        for each in self.batches:
            if each.producer == NOBODY:
                continue
            if each.commit is None:
                begun.setdefault(each.producer, each)
            elif each.producer in begun:
                yield begun.pop(each.producer), each
        yield from ((first, None) for first in begun.values())

    def last_stable_offset(self) -> int:
        unstable = [
            first.first_offset
            for first, end in self.transactions()
            if end is None or end.last_offset >= self.high_watermark
        ]
        return min([self.high_watermark, *unstable])

    def committed(self) -> list[bytes]:
        """The values that a read_committed consumer sees."""
        aborted = {
            (each.producer, each.first_offset)
            for first, end in self.transactions()
            if end is not None and end.commit is False
            for each in self.batches
            if each.producer == first.producer and first.first_offset <= each.first_offset < end.first_offset
        }
        limit = self.last_stable_offset()
        return [
            value
            for each in self.batches
            if each.last_offset < limit and (each.producer, each.first_offset) not in aborted
            for value in each.values
        ]


def consumed(log: PartitionLog, read_bytes: int) -> list[bytes]:
    """What a client with isolation.level=read_committed gives its user, in fetches of this size."""
    seen: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        read = log.read(offset, read_bytes, log.last_stable_offset, at_least_one=True, committed=True)
        data = bytes_of(read)
        if not data:
            break  # only a gap is left, which a cut has made
        waiting = sorted(read.aborted, key=lambda txn: txn.first_offset)
        aborted: set[int] = set()
        for found in whole_batches(data):
            last = found.baseOffset + found.lastOffsetDelta
            while waiting and waiting[0].first_offset <= last:
                aborted.add(waiting.pop(0).producer_id)
            if found.attributes.isControl:
                aborted.discard(found.producerId)
            elif not (found.attributes.isTransactional and found.producerId in aborted):
                kept = [each for each in records(found) if found.baseOffset + each.offsetDelta >= offset]
                seen += [each.value for each in kept]
            offset = last + 1
    return seen


def whole_batches(data: bytes) -> Iterator[object]:
    at = 0
    while at + 12 <= len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
        if at + size > len(data):
            return
        yield record_batch.parse(data[at : at + size])
        at += size


PRODUCERS = st.integers(1, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("transactional"), PRODUCERS, st.integers(1, 3)),
        st.tuples(st.just("plain"), st.just(NOBODY), st.integers(1, 3)),
        st.tuples(st.sampled_from(("commit", "abort")), PRODUCERS, st.just(0)),
        st.tuples(st.sampled_from(("roll", "clean", "unclean")), st.just(0), st.just(0)),
        st.tuples(st.sampled_from(("replicated", "cut")), st.just(0), st.integers(0, 6)),
    ),
    max_size=30,
)


def write(log: PartitionLog, model: Model, action: str, producer: int, count: int) -> None:
    """Append as a leader and note it."""
    values = tuple(b"%d" % (log.log_end_offset + each) for each in range(count))
    if action == "plain":
        data = batch(values)
    elif action == "transactional":
        data = transactional(0, count, producer=producer)
        values = tuple(b"v%d" % each for each in range(count))
    else:
        data = marker(commit=action == "commit", producer=producer)
    info = append(log, data, origin=Origin.COORDINATOR)
    commit = {"commit": True, "abort": False}.get(action)
    model.batches.append(Written(info.first_offset, info.last_offset, producer, commit, values))


@given(steps=STEPS, read_bytes=st.sampled_from((1, 200, 10_000)))
def test_the_last_stable_offset_and_what_is_committed_are_those_of_the_model(
    tmp_path_factory: pytest.TempPathFactory, steps: Sequence[tuple[str, int, int]], read_bytes: int
) -> None:
    root = tmp_path_factory.mktemp("log")
    log, model = new_log(root, CONFIGS), Model()
    for action, producer, count in steps:
        if action == "roll":
            log.roll()
        elif action == "replicated":
            model.high_watermark = min(model.high_watermark + count, log.log_end_offset)
            log.set_high_watermark(model.high_watermark)
        elif action == "cut":
            cut = max(0, log.log_end_offset - count)
            log.truncate_to(cut)
            model.batches = [each for each in model.batches if each.last_offset < cut]
            model.high_watermark = min(model.high_watermark, log.log_end_offset)
        elif action in ("clean", "unclean"):
            (log.close if action == "clean" else log.release)()
            log, _ = reload(log, root, clean=action == "clean")
            # An unclean start finds the end of the last record, which a cut may have left behind.
            model.high_watermark = min(model.high_watermark, log.log_end_offset)
            log.set_high_watermark(model.high_watermark)
        else:
            write(log, model, action, producer, count)
        assert log.last_stable_offset == model.last_stable_offset(), action
        assert consumed(log, read_bytes) == model.committed(), action
    log.release()


def test_a_plain_batch_of_the_same_producer_is_no_part_of_its_transactions(tmp_path) -> None:
    log = new_log(tmp_path)
    append(log, idempotent(0))
    append(log, transactional(1))
    append(log, marker(commit=False), origin=Origin.COORDINATOR)
    log.set_high_watermark(3)
    assert consumed(log, 10_000) == [b"v0"]
