"""Finds the transactions of a log that were aborted, and the first one that is still open.

Rules: KIP-98, Kafka's `ProducerStateManager`. They are derived from the batches. Producer snapshots say which
transactions were open where a segment starts, so that only the segments from there on are read. The high
watermark is not considered: a directory alone does not say what the other replicas have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from klog.formats.checksums import Bytes
from klog.formats.errors import KlogError
from klog.formats.names import FileKind, FileState
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.storage.files.chunks import chunks
from klog.storage.files.files import open_for_reading, read_whole
from klog.storage.files.kafka_files import KafkaFile
from klog.storage.reading.hidden_batches import HiddenBatches
from klog.storage.reading.producer_state import AbortedTxn, ProducerState, newest_state
from klog.storage.reading.read_bounds import ReadBounds
from klog.storage.reading.select import Bounds


class Transactions(NamedTuple):
    """Aborted transactions, and the first offset of the first open one (None: none is open)."""

    aborted: Sequence[AbortedTxn]
    first_open_offset: int | None


def find_transactions(
    files: Iterable[KafkaFile], start_offset: int | None, on_problem: Callable[[KafkaFile, KlogError], None]
) -> Transactions:
    """The transactions of a partition's files that matter to a reader from `start_offset` on.

    Calls `on_problem` for segments that cannot be read. Batches with a wrong checksum are left out.
    """
    present = [file for file in files if file.state is FileState.NORMAL]
    logs = [file for file in present if file.kind is FileKind.LOG]
    snapshots = {file.base_offset: file for file in present if file.kind is FileKind.PRODUCER_SNAPSHOT}
    first, state = _start(logs, snapshots, start_offset or 0)
    for log in logs[first:]:
        try:
            _follow(state, log.path)
        except KlogError as error:
            on_problem(log, error.at(log.path))
    return Transactions(tuple(state.aborted), min(state.open_txns, default=None))


def without_uncommitted(
    wanted: ReadBounds,
    files: Iterable[KafkaFile],
    start_offset: int | None,
    will_read: Callable[[KafkaFile, Bounds], bool],
) -> ReadBounds:
    """`wanted`, which asks for committed records only, with what that means for a partition's files.

    Problems of segments that the caller `will_read` within the new bounds are left for it to report.
    """
    problems: list[tuple[KafkaFile, KlogError]] = []
    start = wanted.bounds.first_offset if start_offset is None else start_offset
    aborted, first_open = find_transactions(files, start, lambda *problem: problems.append(problem))
    bounds = wanted.bounds
    if first_open is not None and (bounds.last_offset is None or bounds.last_offset >= first_open):
        bounds = replace(bounds, last_offset=first_open - 1)
    for file, problem in problems:
        if not will_read(file, bounds):
            wanted.on_problem(problem)
    hidden = HiddenBatches(aborted, show_control=wanted.control_records)
    return replace(wanted, bounds=bounds, hidden=hidden, committed=False)


def _start(
    logs: Sequence[KafkaFile], snapshots: dict[int | None, KafkaFile], offset: int
) -> tuple[int, ProducerState]:
    """The last segment at or before `offset` whose snapshot is valid, and the state there; else the first."""
    number_of = {
        log.base_offset: number
        for number, log in enumerate(logs)
        if number and log.base_offset is not None and log.base_offset <= offset
    }
    state = newest_state(
        (base for base in reversed(number_of) if base in snapshots),
        lambda base: read_whole(snapshots[base].path),
        errors=KlogError,  # an older one, or the start of the log, does as well
    )
    return (0, ProducerState()) if state is None else (number_of[state.end_offset], state)


def _follow(state: ProducerState, path: str) -> None:
    table = BatchTable()
    with open_for_reading(path) as file:
        for data in chunks(file, table):
            for first, last in _valid_runs(data, table):
                state.follow(data, table, first, last)


def _valid_runs(data: Bytes, table: BatchTable) -> Iterator[tuple[int, int]]:
    """The rows of adjacent batches with good checksums: a damaged batch may name any producer."""
    if not kernel.verify(data, table):
        yield 0, len(table)
        return
    first = 0
    for row, valid in enumerate(table.valid):
        if not valid:
            yield first, row
            first = row + 1
    yield first, len(table)
