"""What the group coordinator asks of commits that are written in one pass."""

from __future__ import annotations

from typing import Protocol

from klog.storage.log.batch_run import BatchRun


class CommitRun(BatchRun, Protocol):
    """Commits of one member, each of which becomes one batch: a `BatchRun` after `stamp`.

    `version` is that of their requests. `generation` is the epoch of a member of the consumer protocol;
    `instance` is None if the member is not static. `largest_metadata_bytes` is that of one offset.
    """

    version: int
    generation: int
    largest_metadata_bytes: int

    @property
    def group(self) -> str: ...
    @property
    def member(self) -> str: ...
    @property
    def instance(self) -> str | None: ...

    def offsets(self) -> list[tuple[int, int, str]]:
        """Each offset with its leader epoch and metadata."""

    def stamp(self, acks: int, now_ms: int) -> None:
        """Make the batches, with this time."""
