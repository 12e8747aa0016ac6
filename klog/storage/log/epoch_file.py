"""The leader epochs of a log, kept in its `leader-epoch-checkpoint` file (KIP-101, KIP-279).

Rules: Kafka's `LeaderEpochFileCache`. The file is written before an append under a new epoch is
acknowledged, so a follower can always be told where an epoch ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from klog.formats.checkpoints import EpochCheckpoint, EpochEntry, build_epochs
from klog.formats.epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET, EpochEnd
from klog.formats.names import FileKind
from klog.storage.files.files import write_atomically
from klog.storage.repair.leader_epochs import LeaderEpochs


class EpochFile:
    """Epochs with their start offsets, saved at every change; the log's lock guards it."""

    def __init__(self, directory: str, epochs: LeaderEpochs) -> None:
        self._path = os.path.join(directory, FileKind.LEADER_EPOCH_CHECKPOINT)
        self._epochs = epochs
        self._is_on_disk = True
        self.latest = UNDEFINED_EPOCH
        self._latest_start = UNDEFINED_OFFSET
        self._refresh()

    def _refresh(self) -> None:
        entries = self._epochs.entries
        self.latest = entries[-1].epoch if entries else UNDEFINED_EPOCH
        self._latest_start = entries[-1].start_offset if entries else UNDEFINED_OFFSET

    def move_to(self, directory: str) -> None:
        """Use the new name of the log's directory."""
        self._path = os.path.join(directory, FileKind.LEADER_EPOCH_CHECKPOINT)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All epochs, ascending."""
        return self._epochs.entries

    def assign(self, epoch: int, start_offset: int) -> None:
        """The leader of `epoch` writes from `start_offset` on; entries that contradict this are
        removed.

        Nothing changes if the epoch is known to start there or before. Raises `StorageError`.
        """
        if (epoch == self.latest and start_offset >= self._latest_start) or epoch < 0:
            return
        epochs = self._copy()
        epochs.assign(EpochEntry(epoch, start_offset))
        self._save(epochs)

    def follow(self, batches: Iterable[tuple[int, int]]) -> None:
        """Batches of a leader are written: their leader epochs, and where the batches before each end."""
        for epoch, start_offset in batches:
            if epoch >= 0:
                self.assign(epoch, start_offset)
            else:
                # Messages before magic 2 have no epochs, so the known epochs do not cover them.
                self.clear()

    def assign_first(self, epoch: int, start_offset: int) -> None:
        """As `assign`, for a log without epochs and records. The file is forced to disk later, by who calls
        `take_unsynced`.
        """
        if epoch >= 0:
            epochs = self._copy()
            epochs.assign(EpochEntry(epoch, start_offset))
            self._save(epochs, sync=False)

    def take_unsynced(self) -> str | None:
        """The path of the file if it is still to be forced to disk, which the caller does now."""
        if self._is_on_disk:
            return None
        self._is_on_disk = True
        return self._path

    def not_synced(self) -> None:
        """What `take_unsynced` gave could not be forced to disk."""
        self._is_on_disk = False

    def start_of_latest(self) -> int:
        """Where the latest epoch starts, -1 without any."""
        return self._latest_start

    def epoch_of(self, offset: int) -> int:
        """The epoch whose leader wrote `offset`, -1 if none is known to have."""
        found = UNDEFINED_EPOCH
        for entry in self._epochs.entries:
            if entry.start_offset > offset:
                break
            found = entry.epoch
        return found

    def end_of(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The largest epoch at or below `epoch`, and where it ends (OffsetForLeaderEpoch)."""
        entries = self._epochs.entries
        if epoch < 0 or not entries or epoch > self.latest:
            return EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        if epoch < entries[0].epoch:
            return EpochEnd(epoch, entries[0].start_offset)
        after = next(number for number, entry in enumerate(entries) if entry.epoch > epoch)
        return EpochEnd(entries[after - 1].epoch, entries[after].start_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that start at or after the log's end."""
        if self.start_of_latest() >= end_offset:
            epochs = self._copy()
            epochs.truncate_from_end(end_offset)
            self._save(epochs)

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs below the log's start."""
        epochs = self._copy()
        epochs.truncate_from_start(start_offset)
        if epochs.entries != self._epochs.entries:
            self._save(epochs)

    def clear(self) -> None:
        """Forget all."""
        if self._epochs.entries:
            self._save(LeaderEpochs())

    def _copy(self) -> LeaderEpochs:
        return LeaderEpochs(self._epochs.entries)

    def _save(self, epochs: LeaderEpochs, *, sync: bool = True) -> None:
        """Replace the epochs. If the file cannot be written they stay as they are."""
        write_atomically(self._path, build_epochs(EpochCheckpoint(epochs.entries)), sync=sync)
        self._epochs = epochs
        self._is_on_disk = sync
        self._refresh()
