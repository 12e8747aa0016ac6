"""What the group coordinator counts since the start: Kafka's `group-coordinator-metrics`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class GroupCounts:
    """Offsets that were committed, expired or deleted by OffsetDelete, and rebalances that were completed.

    The counts may be read while others count; each is added to in one step of the interpreter.
    """

    commits: int = 0
    expirations: int = 0
    deletions: int = 0
    rebalances: int = 0
