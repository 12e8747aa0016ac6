"""A backup in memory: what a run would read from a log directory at a moment."""

from __future__ import annotations

import hashlib
import io
import time
from pathlib import Path
from typing import BinaryIO

from klog.backup.model import PartitionState, Piece, SnapshotObject, StoredObject
from klog.formats.names import TopicPartition, parse_directory
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.storage.files.checkpoint_files import read_leader_epochs
from klog.storage.files.kafka_files import partition_directories
from klog.storage.log.directory_loading import read_topic_id

States = dict[TopicPartition, PartitionState]


class MemoryPieces:
    """Holds the pieces of all runs by name."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}

    def open_piece(self, piece: Piece) -> BinaryIO:
        return io.BytesIO(self.data[piece.name])

    def read_stored(self, stored: StoredObject) -> bytes:
        return self.data[stored.name]

    def back_up(self, log_directory: Path, pause_s: float = 0.0) -> States:
        """Reads each partition, one after the other, as far as its batches are whole."""
        states = {}
        for directory in map(Path, partition_directories(str(log_directory))):
            time.sleep(pause_s)
            state = self._state(directory)
            states[state.partition] = state
        return states

    def _state(self, directory: Path) -> PartitionState:
        partition = parse_directory(directory.name).partition
        epochs = read_leader_epochs(str(directory))
        snapshots = [(int(each.stem), each.read_bytes()) for each in sorted(directory.glob("*.snapshot"))]
        pieces = [piece for log in sorted(directory.glob("*.log")) for piece in self._pieces(partition, log)]
        end = pieces[-1].end_offset if pieces else 0
        usable = [each for each in snapshots if each[0] <= end]
        return PartitionState(
            partition,
            read_topic_id(str(directory)),
            tuple(pieces),
            pieces[0].first_offset if pieces else 0,
            end,
            end,
            tuple(each for each in epochs if each.start_offset <= end),
            self._snapshot(partition, *usable[-1]) if usable else None,
            str(directory),
            0,
            int(time.time() * 1000),
        )

    def _snapshot(self, partition: TopicPartition, offset: int, data: bytes) -> SnapshotObject:
        digest = hashlib.sha256(data).hexdigest()
        name = f"{partition}/{offset}-{digest}.snapshot"
        self.data[name] = data
        return SnapshotObject(offset, StoredObject(name, len(data), digest))

    def _pieces(self, partition: TopicPartition, log: Path) -> list[Piece]:
        data, table = log.read_bytes(), BatchTable()
        kernel.scan(data, 0, True, table)
        kernel.verify(data, table)
        rows = len(table) if 0 not in table.valid else list(table.valid).index(0)
        # Several pieces, as increments of an active segment are.
        steps = list(range(0, rows, 40))
        return [self._piece(partition, int(log.stem), data, table, at, min(at + 40, rows)) for at in steps]

    def _piece(
        self, partition: TopicPartition, base: int, data: bytes, table: BatchTable, first: int, last: int
    ) -> Piece:
        start, end = table.position[first], table.position[last - 1] + table.size[last - 1]
        digest = hashlib.sha256(data[start:end]).hexdigest()
        name = f"{partition}/{base}-{table.base_offset[first]}-{digest}"
        self.data[name] = data[start:end]
        return Piece(
            base,
            start,
            end - start,
            table.base_offset[first],
            table.last_offset[last - 1] + 1,
            max(table.max_timestamp[first:last]),
            digest,
            name,
            end - start,
            digest,
        )


def around(runs: list[States], partition: TopicPartition, at_ms: int) -> tuple[PartitionState | None, ...]:
    """The last state that was read before a moment, and the next one."""
    found = [run[partition] for run in runs if partition in run]
    before = [each for each in found if each.read_time_ms <= at_ms]
    after = [each for each in found if each.read_time_ms > at_ms]
    return before[-1] if before else None, after[0] if after else None
