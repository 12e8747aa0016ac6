"""Prints runs of records. For a member of a group, only what was printed is committed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from klog.admin.group_consuming import GroupPlan, GroupReading
from klog.client.membership import GroupMember, MemberSettings, Topics
from klog.commands.shared.interrupts import Interrupts
from klog.commands.shared.messages import print_note

if TYPE_CHECKING:
    from klog.admin.consuming import OnJump, ReadPlan, Run
    from klog.client.cluster import Cluster
    from klog.commands.shared.decoding.runs import Rendering
    from klog.commands.shared.records.output_buffer import OutputBuffer
    from klog.storage.reading.reader import OnProblem


class Copying:
    """Prints records of a plan; `count` is how many were printed, at most `limit`."""

    def __init__(self, rendering: Rendering, buffer: OutputBuffer, limit: int | None, plan: ReadPlan) -> None:
        self._rendering = rendering
        self._buffer = buffer
        self._limit = limit
        self._plan = plan
        self.count = 0

    def is_full(self) -> bool:
        """Whether no more records may be printed."""
        return self.count == self._limit

    def flush(self) -> None:
        """Write what is buffered."""
        self._buffer.flush()

    def run(self, runs: Iterable[Run]) -> None:
        """Read and print. Raises ClientError, ChannelError."""
        try:
            if not self.is_full():
                for run in runs:
                    self.show(run)
                    if self.is_full():
                        break
        finally:
            self.flush()

    def show(self, run: Run) -> int | None:
        """Print a run; gives the offset after the last record that is done, None if there is none."""
        from klog.commands.shared.records.plan import Selection
        from klog.commands.shared.records.rows import keep_matching

        after = run.records.offset[-1] + 1 if len(run.records) else None
        bounds = self._plan.bounds
        if isinstance(bounds, Selection) and bounds.by_content:
            keep_matching(bounds, run.payload, run.records)
        found = len(run.records)
        shown = found if self._limit is None else min(self._limit - self.count, found)
        if shown < found:
            after = run.records.offset[shown]
        self._rendering.write(run, shown)
        self.count += shown
        if self._plan.follow:
            self._buffer.flush()
        else:
            self._buffer.flush_if_full()
        return after


def copy_in_group(
    cluster: Cluster,
    topics: Topics,
    copying: Copying,
    plan: ReadPlan,
    group: GroupPlan,
    member: MemberSettings,
    on_problem: OnProblem,
    on_jump: OnJump,
) -> None:
    """Print the member's share of the records; at the end, also by Ctrl-C, commit them and leave the group.

    Raises ClientError, ChannelError.
    """
    reading = GroupReading(cluster, GroupMember(cluster, topics, member), plan, group, on_problem, on_jump)
    interrupted, printed = True, True
    with Interrupts() as interrupts:
        try:
            try:
                if not copying.is_full():
                    for run in reading.runs():
                        with interrupts.shield():
                            partition, after = run.partition, copying.show(run)
                            if after is not None:
                                reading.took(partition, after)
                        if copying.is_full():
                            break
                interrupted = False
            finally:
                copying.flush()
        except OSError:
            printed = False  # what was buffered is lost: nobody knows how much was read
            raise
        finally:
            reading.close(interrupted=interrupted, commit=printed)


def note_lost(group_id: str) -> None:
    """Say that others will read records again that were printed here."""
    print_note(
        f"group {group_id}: the coordinator had given the partitions to others, so the last records "
        "printed here were not committed"
    )
