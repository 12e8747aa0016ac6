"""Proves from histories what a broker has to keep under kills. Each check returns its violations as texts."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from itertools import accumulate

from tests.checker.histories import (
    Acknowledged,
    Commit,
    Logs,
    Observed,
    Outage,
    Outcome,
    Partition,
    Transaction,
    Wait,
)

# -- records -------------------------------------------------------------------------------------------------


def lost(acknowledged: Iterable[Acknowledged], logs: Logs) -> Iterator[str]:
    """Acknowledged records that are not where the broker said."""
    for each in acknowledged:
        found = logs.get(each.partition, {}).get(each.offset)
        if found != each.record:
            yield f"{each.record} was acknowledged at {each.partition} {each.offset}, there is {found}"


def duplicated(logs: Logs) -> Iterator[str]:
    """Records that are there more than once."""
    counts = Counter(record for log in logs.values() for record in log.values())
    for record, count in counts.items():
        if count > 1:
            yield f"{record} is there {count} times"


def disordered(logs: Logs) -> Iterator[str]:
    """Records that are behind a later one of the same producer in their partition."""
    for partition, log in logs.items():
        last: dict[str, int] = {}
        for offset in sorted(log):
            producer, number = log[offset]
            if number < last.get(producer, -1):
                yield f"{partition} {offset}: {producer} wrote {number} before {last[producer]}"
            last[producer] = max(number, last.get(producer, -1))


# -- commits -------------------------------------------------------------------------------------------------


class _HighestUntil:
    """The highest offset of all events until a time."""

    def __init__(self, events: Iterable[tuple[float, int]]) -> None:
        ordered = sorted(events)
        self._times = [time_s for time_s, _ in ordered]
        self._highest = list(accumulate((offset for _, offset in ordered), max))

    def at(self, time_s: float) -> int:
        count = bisect_right(self._times, time_s)
        return self._highest[count - 1] if count else 0


def commits_lost(commits: Iterable[Commit], observed: Iterable[Observed]) -> Iterator[str]:
    """Observations below an offset that was committed before, or above all that anybody tried to commit.

    The members of a group commit growing offsets only.
    """
    acknowledged: dict[Partition, list[tuple[float, int]]] = defaultdict(list)
    attempted: dict[Partition, list[tuple[float, int]]] = defaultdict(list)
    for commit in commits:
        attempted[commit.partition].append((commit.started_s, commit.offset))
        if commit.ended_s is not None:
            acknowledged[commit.partition].append((commit.ended_s, commit.offset))
    for partition, all_seen in _by_partition(observed).items():
        lowest, highest = _HighestUntil(acknowledged[partition]), _HighestUntil(attempted[partition])
        for seen in all_seen:
            at_least, at_most = lowest.at(seen.started_s), highest.at(seen.ended_s)
            if not at_least <= seen.offset <= at_most:
                yield f"{partition}: {seen.offset} is committed, expected {at_least} to {at_most}"


def went_back(observed: Iterable[Observed]) -> Iterator[str]:
    """Observations below an earlier one."""
    for partition, all_seen in _by_partition(observed).items():
        earlier = _HighestUntil((each.ended_s, each.offset) for each in all_seen)
        for seen in all_seen:
            if seen.offset < earlier.at(seen.started_s):
                yield f"{partition}: the committed offset went back to {seen.offset}"


def _by_partition(observed: Iterable[Observed]) -> dict[Partition, list[Observed]]:
    found: dict[Partition, list[Observed]] = defaultdict(list)
    for each in observed:
        found[each.partition].append(each)
    return found


def skipped(
    committed: Mapping[Partition, int], read: Mapping[Partition, Set[int]], logs: Logs
) -> Iterator[str]:
    """Records below the committed offset of a group that none of its members has read."""
    for partition, end in committed.items():
        for offset, record in logs.get(partition, {}).items():
            if offset < end and offset not in read.get(partition, set()):
                yield f"{partition} {offset}: {record} was committed and never read"


# -- transactions --------------------------------------------------------------------------------------------


def not_atomic(transactions: Iterable[Transaction], visible: Logs) -> Iterator[str]:
    """Transactions that a read_committed consumer sees in part, or not as they ended."""
    there = {record for log in visible.values() for record in log.values()}
    for each in transactions:
        seen = sum(record in there for record in each.records)
        complete = len(each.records)
        if each.outcome is Outcome.COMMITTED and seen != complete:
            yield f"{each.name} was committed, {seen} of {complete} records are visible"
        elif each.outcome is Outcome.ABORTED and seen:
            yield f"{each.name} was aborted, {seen} of {complete} records are visible"
        elif seen not in (0, complete):
            yield f"{each.name} is visible in part: {seen} of {complete} records"


def not_exactly_once(
    transactions: Collection[Transaction], visible: Logs, committed: Mapping[Partition, int], inputs: Logs
) -> Iterator[str]:
    """Input records that were not transformed exactly once by the visible transactions.

    That are those below the committed offset of the group.
    """
    there = {record for log in visible.values() for record in log.values()}
    counts: Counter[tuple[Partition, int]] = Counter()
    for each in transactions:
        # Whether it was committed is what is visible of it, if its producer does not know.
        if each.records and each.records[0] in there:
            for partition, (start, end) in each.inputs.items():
                counts.update((partition, offset) for offset in range(start, end))
    for partition, log in inputs.items():
        end = committed.get(partition, 0)
        for offset in log:
            expected = 1 if offset < end else 0
            if counts[partition, offset] != expected:
                count = counts[partition, offset]
                yield f"{partition} {offset} was transformed {count} times, {end} is committed"


def transaction_violations(
    transactions: Collection[Transaction],
    visible: Logs,
    committed: Mapping[Partition, int],
    inputs: Logs,
    observed: Iterable[Observed],
) -> list[str]:
    """Violations of consume-transform-produce loops: transactions are atomic, input is transformed once.

    `visible` is what a read_committed consumer sees, `committed` and `observed` are the offsets of the group.
    """
    return [
        *not_atomic(transactions, visible),
        *not_exactly_once(transactions, visible, committed, inputs),
        *duplicated(visible),
        *disordered(visible),
        *went_back(observed),
    ]


def stuck(waits: Iterable[Wait], outages: Collection[Outage], limit_s: float) -> Iterator[str]:
    """Producers that waited longer than the limit while a broker was there."""
    for wait in waits:
        without = sum(
            max(0.0, min(wait.ended_s, each.ended_s) - max(wait.started_s, each.started_s))
            for each in outages
        )
        waited_s = wait.ended_s - wait.started_s - without
        if waited_s > limit_s:
            yield f"{wait.producer} waited {waited_s:.1f} s for {wait.what}, the limit is {limit_s:.1f} s"
