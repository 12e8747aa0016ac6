"""The plan for one partition, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from klog.convert.tasks import ConvertTask
from klog.formats.names import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The conversion of one partition.

    `replaces` are the base offsets of the segments that the new ones replace, `kept` those of the others.
    `reason` says why nothing is converted, if so.
    """

    partition: TopicPartition
    directory: str
    target: str
    tasks: tuple[ConvertTask, ...]
    replaces: tuple[int, ...]
    kept: tuple[int, ...]
    size_bytes: int
    reason: str | None = None

    @property
    def is_in_place(self) -> bool:
        """Whether the new segments replace the originals, and do not go to another directory."""
        return self.target == self.directory

    @property
    def convertible_bytes(self) -> int:
        """Bytes of the segments that are replaced."""
        return sum(task.size_bytes for task in self.tasks)
