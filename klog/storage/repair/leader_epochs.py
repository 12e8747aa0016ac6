"""The leader epochs of a partition and the offset at which each starts (KIP-101, KIP-279).

Rules: Kafka's `LeaderEpochFileCache`. Pure values; `checkpoint_files` reads the file.
"""

from __future__ import annotations

from collections.abc import Iterable

from klog.formats.checkpoints import EpochEntry


class LeaderEpochs:
    """Epochs with their start offsets; both ascend."""

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._entries: list[EpochEntry] = []
        for entry in entries:
            self.assign(entry)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """The epochs, ascending."""
        return tuple(self._entries)

    def assign(self, entry: EpochEntry) -> None:
        """Add an epoch; entries with an epoch or a start offset that is not below it are removed."""
        last = self._entries[-1] if self._entries else None
        if last is not None and entry.epoch == last.epoch and entry.start_offset >= last.start_offset:
            return
        kept = self._entries
        while kept and (kept[-1].epoch >= entry.epoch or kept[-1].start_offset >= entry.start_offset):
            kept.pop()
        kept.append(entry)

    def assign_newer(self, entry: EpochEntry) -> None:
        """Add the epoch of a batch, if it is above the latest."""
        if not self._entries or entry.epoch > self._entries[-1].epoch:
            self.assign(entry)

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove epochs that start at or after the log's end."""
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs that end before the log's start; the epoch that contains it starts there now."""
        spanning = None
        while self._entries and self._entries[0].start_offset <= start_offset:
            spanning = self._entries.pop(0)
        if spanning is not None:
            self._entries.insert(0, EpochEntry(spanning.epoch, start_offset))
