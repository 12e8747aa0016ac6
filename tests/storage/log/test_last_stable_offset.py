"""Whatever is written, cut and loaded again: a read_committed consumer sees what a simple model says.

The model keeps the batches of the log and replays them each time. The log keeps the first offsets of
transactions, snapshots and transaction indexes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from klog.storage.log.append_values import Origin
from klog.storage.log.partition_log import PartitionLog
from tests.storage.log.building import (
    append,
    batch,
    idempotent,
    marker,
    new_log,
    reload,
    transactional,
)
from tests.storage.log.consuming import committed_records

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
    """What a log holds, and how far it is replicated.

    A producer snapshot does not say which markers were not replicated yet, so a log that has loaded one may
    have forgotten those below `loaded_to`. In Kafka it always has.
    """

    batches: list[Written] = field(default_factory=list)
    high_watermark: int = 0
    loaded_to: int = 0

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

    def last_stable_offsets(self) -> range:
        """The smallest one that the log may have, to the largest."""
        smallest = largest = self.high_watermark
        for first, end in self.transactions():
            if end is None or end.last_offset >= self.high_watermark:
                smallest = min(smallest, first.first_offset)
                if end is None or end.last_offset >= self.loaded_to:
                    largest = min(largest, first.first_offset)
        return range(smallest, largest + 1)

    def committed(self, limit: int) -> list[bytes]:
        """The values that a read_committed consumer sees up to the last stable offset."""
        aborted = {
            (each.producer, each.first_offset)
            for first, end in self.transactions()
            if end is not None and end.commit is False
            for each in self.batches
            if each.producer == first.producer and first.first_offset <= each.first_offset < end.first_offset
        }
        return [
            value
            for each in self.batches
            if each.last_offset < limit and (each.producer, each.first_offset) not in aborted
            for value in each.values
        ]


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


# A marker is cut off, and another one decides otherwise.
DECIDED_ANEW = [
    ("transactional", 1, 1),
    ("abort", 1, 0),
    ("cut", 0, 1),
    ("commit", 1, 0),
    ("replicated", 0, 6),
]


@given(steps=STEPS, read_bytes=st.sampled_from((1, 200, 10_000)))
@example(steps=DECIDED_ANEW, read_bytes=200)
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
            model.loaded_to = log.log_end_offset
        elif action in ("clean", "unclean"):
            (log.close if action == "clean" else log.release)()
            log, _ = reload(log, root, clean=action == "clean")
            # An unclean start finds the end of the last record, which a cut may have left behind.
            model.high_watermark = min(model.high_watermark, log.log_end_offset)
            model.loaded_to = log.log_end_offset
            log.set_high_watermark(model.high_watermark)
        else:
            write(log, model, action, producer, count)
        assert log.last_stable_offset in model.last_stable_offsets(), action
        assert [value for _, value in committed_records(log, read_bytes)] == model.committed(
            log.last_stable_offset
        ), action
    log.release()


def test_a_plain_batch_of_the_same_producer_is_no_part_of_its_transactions(tmp_path) -> None:
    log = new_log(tmp_path)
    append(log, idempotent(0))
    append(log, transactional(1))
    append(log, marker(commit=False), origin=Origin.COORDINATOR)
    log.set_high_watermark(3)
    assert committed_records(log, 10_000) == [(0, b"v0")]
