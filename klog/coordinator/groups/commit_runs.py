"""Writes commits of the usual kind where they were read.

The effect is that of `GroupRequests.commit` for each of them in turn. Whatever is not usual is left to it,
and so are errors, which it finds again.
"""

from __future__ import annotations

from collections.abc import Sequence

from klog.coordinator.groups.commit_run import CommitRun
from klog.coordinator.groups.coordinator import GroupCoordinator
from klog.coordinator.groups.services import Wait
from klog.formats.names import PartitionKey
from klog.protocol.error_codes import ErrorCode


class GroupCommits:
    """Takes runs of commits. Safe for threads."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator
        self._max_metadata_bytes = coordinator.settings.max_metadata_bytes

    def take(self, run: CommitRun, keys: Sequence[PartitionKey]) -> Wait | bool:
        """As `GroupPartition.commit_run`, for the partition of the run's group."""
        if run.largest_metadata_bytes > self._max_metadata_bytes:
            return False
        group_id = run.group
        owner = self._coordinator.owner_of(group_id)
        if isinstance(owner, ErrorCode):
            return False
        return owner.commit_run(run, group_id, keys)
