"""A broker in memory whose clients run consume-transform-produce loops, and faults that it can have.

It writes the histories that the players of the real checker write. So the checks can be tested: they find
each fault, and nothing without one. Everything follows from a seed.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tests.checker.histories import Observed, Outcome, Partition, RecordId, Transaction

INPUT_PARTITIONS: Final = 2
OUTPUT_PARTITIONS: Final = 3
RECORDS: Final = 60
# How many transactions are without the fault before one has it.
_BEFORE_THE_FAULT: Final = 4


class Fault(Enum):
    """What a broken broker does, once."""

    COMMIT_MARKED_AS_ABORT = "a commit is acknowledged, and its markers say that it was aborted"
    ABORT_MARKED_AS_COMMIT = "an abort is acknowledged, and its markers say that it was committed"
    MARKERS_OF_BOTH_TYPES = "one partition gets an abort marker, the others the commit markers"
    END_LOST = "a commit is acknowledged and forgotten: no partition gets a marker"
    MARKER_LOST = "one partition of a committed transaction gets no marker"
    OFFSETS_OUTSIDE = "the offsets of an aborted transaction are committed"
    OFFSETS_LOST = "the offsets of a committed transaction are lost"
    OFFSETS_GO_BACK = "an older offset is restored after a committed one"
    BATCH_DUPLICATED = "a batch that is sent again is appended again"
    BATCH_LOST = "an acknowledged batch of a committed transaction is not in the log"
    BATCHES_REORDERED = "two batches of a producer are appended in the wrong order"
    FENCED_PRODUCER_COMMITS = "the transaction of a fenced producer is committed, too"


@dataclass(slots=True)
class History:
    """What clients say, and what a read_committed consumer sees in the end."""

    inputs: dict[Partition, dict[int, RecordId]]
    transactions: list[Transaction] = field(default_factory=list)
    visible: dict[Partition, dict[int, RecordId]] = field(default_factory=dict)
    committed: dict[Partition, int] = field(default_factory=dict)
    observed: list[Observed] = field(default_factory=list)


def _input(number: int) -> Partition:
    return ("input", number)


def _output(record: RecordId) -> Partition:
    return ("output", record.number % OUTPUT_PARTITIONS)


class ModelBroker:
    """Plays the loops of two producers. `fault` is what goes wrong once, after some transactions.

    `has_failed` says whether it went wrong: some faults need a transaction that the seed may not bring.
    """

    def __init__(self, seed: int, fault: Fault | None = None) -> None:
        self._chance = random.Random(seed)
        self._fault = fault
        self.has_failed = False
        self._begun = 0
        self._times = itertools.count()
        self._numbers = {name: itertools.count() for name in ("one", "two")}
        self._ends: dict[Partition, int] = {}
        self._unstable: set[Partition] = set()
        inputs = {
            _input(number): {
                offset: RecordId("in", offset * INPUT_PARTITIONS + number) for offset in range(RECORDS)
            }
            for number in range(INPUT_PARTITIONS)
        }
        self.history = History(inputs)

    def play(self) -> History:
        """Transform all input, in transactions of which some are aborted and some have an unknown end."""
        while open_inputs := [each for each in self.history.inputs if self._position(each) < RECORDS]:
            partition = self._chance.choice(open_inputs)
            size = self._chance.randint(2, 6)
            self._transact(partition, min(self._position(partition) + size, RECORDS))
            self._observe()
        return self.history

    def _position(self, partition: Partition) -> int:
        return self.history.committed.get(partition, 0)

    def _observe(self) -> None:
        time_s = float(next(self._times))
        self.history.observed += (
            Observed(partition, offset, time_s, time_s)
            for partition, offset in self.history.committed.items()
        )

    def _strikes(self, *faults: Fault) -> bool:
        """Whether one of these faults is the broker's and happens now."""
        if self._fault not in faults or self._begun <= _BEFORE_THE_FAULT:
            return False
        self._fault = None
        self.has_failed = True
        return True

    def _records(self, producer: str, count: int) -> list[RecordId]:
        numbers = self._numbers[producer]
        return [RecordId(producer, next(numbers)) for _ in range(2 * count)]

    # -- one transaction -------------------------------------------------------------------------------------

    def _transact(self, partition: Partition, end: int) -> None:
        self._begun += 1
        producer = self._chance.choice(tuple(self._numbers))
        start = self._position(partition)
        records = self._records(producer, end - start)
        outcome = self._chance.choices(list(Outcome), (8, 1, 1))[0]
        # Whether a transaction with an unknown end was committed is the broker's to say.
        commits = outcome is Outcome.COMMITTED or (outcome is Outcome.UNKNOWN and self._chance.random() < 0.5)
        name = f"{producer} {self._begun}"
        self.history.transactions.append(Transaction(name, records, {partition: (start, end)}, outcome))
        if commits:
            self._commit(partition, start, end, records, known=outcome is Outcome.COMMITTED)
        else:
            self._abort(partition, end, records, known=outcome is Outcome.ABORTED)

    def _commit(
        self, partition: Partition, start: int, end: int, records: Sequence[RecordId], *, known: bool
    ) -> None:
        if known and self._strikes(Fault.END_LOST):
            # The transaction stays open: a consumer sees nothing from here on.
            self._unstable |= {_output(each) for each in records}
            return
        self._append(self._marked(records, known=known))
        if self._strikes(Fault.FENCED_PRODUCER_COMMITS):
            self._fenced_commit(partition, start, end)
        if known and self._strikes(Fault.OFFSETS_LOST):
            return
        self.history.committed[partition] = end
        if start > 0 and self._strikes(Fault.OFFSETS_GO_BACK):
            self._observe()
            self.history.committed[partition] = start - 1

    def _marked(self, records: Sequence[RecordId], *, known: bool) -> list[RecordId]:
        """What a read_committed consumer sees of a committed transaction."""
        seen = list(records)
        if known and self._strikes(Fault.COMMIT_MARKED_AS_ABORT):
            return []
        if self._strikes(Fault.MARKERS_OF_BOTH_TYPES):
            return [each for each in seen if _output(each) != _output(seen[0])]
        if self._strikes(Fault.MARKER_LOST):
            self._unstable.add(_output(seen[0]))
        if self._strikes(Fault.BATCH_DUPLICATED):
            return seen + seen[:2]
        if known and self._strikes(Fault.BATCH_LOST):
            return seen[2:]
        # With more records than partitions, two of a producer are in one partition.
        if len(seen) > OUTPUT_PARTITIONS and self._strikes(Fault.BATCHES_REORDERED):
            return seen[::-1]
        return seen

    def _abort(self, partition: Partition, end: int, records: Sequence[RecordId], *, known: bool) -> None:
        if known and self._strikes(Fault.ABORT_MARKED_AS_COMMIT):
            self._append(records)
        if self._strikes(Fault.OFFSETS_OUTSIDE):
            self.history.committed[partition] = end

    def _fenced_commit(self, partition: Partition, start: int, end: int) -> None:
        """A producer that was taken for dead comes back, and ends what it began with the same input."""
        records = self._records("one", end - start)
        name = f"fenced {self._begun}"
        self.history.transactions.append(
            Transaction(name, records, {partition: (start, end)}, Outcome.UNKNOWN)
        )
        self._append(records)

    def _append(self, records: Sequence[RecordId]) -> None:
        for record in records:
            partition = _output(record)
            # A marker takes an offset now and then.
            offset = self._ends.get(partition, 0) + self._chance.randint(0, 1)
            self._ends[partition] = offset + 1
            if partition not in self._unstable:
                self.history.visible.setdefault(partition, {})[offset] = record
