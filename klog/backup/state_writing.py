"""Writes the states of the partitions that a run found changed, several in one object."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

from klog.backup import documents, names
from klog.backup.documents import StoredState
from klog.backup.model import PartitionRef, PartitionState
from klog.backup.pieces import PieceWriter
from klog.backup.repository import Repository
from klog.formats.errors import FormatError
from klog.formats.names import TopicPartition

_MOST_STATES: Final = 2_000
"""How many pieces the states in one object describe, so that reading one state does not read all."""


class StateWriter:
    """Collects states, and writes objects of them, in the name of the run `identifier`. Methods raise
    `StorageError`.
    """

    def __init__(self, repository: Repository, pieces: PieceWriter) -> None:
        self.identifier = ""
        self._pieces = pieces
        self._repository = repository
        self._number = self._size = 0
        self._waiting: list[StoredState] = []
        self._refs: dict[TopicPartition, PartitionRef] = {}

    def add(
        self,
        state: PartitionState,
        before: PartitionRef | None,
        seen: str,
        refs: dict[TopicPartition, PartitionRef | None],
    ) -> None:
        """Add a state; `before` leads to the one before."""
        stored = StoredState(state)
        if before is not None:
            with suppress(FormatError):  # what is damaged is not built upon
                stored = documents.added_to(*self._repository.whole(state.partition, before), state)
        self._waiting.append(stored)
        self._refs[state.partition] = PartitionRef(
            states="",
            source=state.source,
            fingerprint=seen,
            log_start_offset=state.log_start_offset,
            end_offset=state.end_offset,
            size_bytes=state.size_bytes,
            read_time_ms=state.read_time_ms,
            is_damaged=bool(state.damage),
            broker_id=state.broker_id,
        )
        self._size += 1 + len(stored.state.pieces)
        if self._size >= _MOST_STATES:
            self.flush(refs)

    def flush(self, refs: dict[TopicPartition, PartitionRef | None]) -> None:
        """Write what was added, and put the references into `refs`."""
        if not self._waiting:
            return
        self._pieces.flush()
        name = names.states(self.identifier, self._number)
        self._repository.store.put(name, documents.encode_states(self._waiting))
        refs.update({partition: replace(ref, states=name) for partition, ref in self._refs.items()})
        self._number += 1
        self._waiting, self._refs, self._size = [], {}, 0
