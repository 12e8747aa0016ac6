"""What clients did and saw, as values. Times are seconds of one monotonic clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

Partition = tuple[str, int]


class RecordId(NamedTuple):
    """A record, by its producer and its place in what the producer wrote to all partitions."""

    producer: str
    number: int


class Acknowledged(NamedTuple):
    """A record that the broker acknowledged, and where it said that it is."""

    record: RecordId
    partition: Partition
    offset: int


# All records of a partition at the end, by offset.
Log = Mapping[int, RecordId]
Logs = Mapping[Partition, Log]


class Commit(NamedTuple):
    """An attempt to commit an offset. `ended_s` is None if the client does not know whether it succeeded."""

    partition: Partition
    offset: int
    started_s: float
    ended_s: float | None


class Observed(NamedTuple):
    """A committed offset as a client fetched it. `offset` is 0 if there was none."""

    partition: Partition
    offset: int
    started_s: float
    ended_s: float


class Outcome(Enum):
    """How a transaction ended, as far as its producer knows."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Transaction(NamedTuple):
    """A transaction of a producer: the records that it wrote, and the input that it read.

    `inputs` are the offsets of the input by partition, as half-open ranges.
    """

    name: str
    records: Sequence[RecordId]
    inputs: Mapping[Partition, tuple[int, int]]
    outcome: Outcome


class Wait(NamedTuple):
    """How long a producer waited for an answer while a broker was up."""

    producer: str
    what: str
    started_s: float
    ended_s: float


class Outage(NamedTuple):
    """A time in which no broker served."""

    started_s: float
    ended_s: float
