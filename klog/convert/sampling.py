"""Estimates what a conversion gains: converts some of the batches of each segment, and writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from klog.convert.batches import BatchConverter, EpochOfOffset
from klog.convert.converting import located
from klog.convert.partition_plan import PartitionPlan
from klog.convert.tasks import ConvertTask, Source
from klog.formats.names import FileKind
from klog.kernel.columns import BatchTable
from klog.storage.cleaner.source import indexed_positions, verified_batches

SAMPLE_BYTES: Final = 1 << 20
_PLACES: Final = 3


@dataclass(frozen=True, slots=True)
class Estimate:
    """How many bytes and batches were sampled, and what became of them."""

    sampled_bytes: int = 0
    converted_bytes: int = 0
    batches_read: int = 0
    batches_written: int = 0

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(
            self.sampled_bytes + other.sampled_bytes,
            self.converted_bytes + other.converted_bytes,
            self.batches_read + other.batches_read,
            self.batches_written + other.batches_written,
        )

    def of(self, size_bytes: int) -> int:
        """The expected size of so many bytes, converted."""
        return size_bytes * self.converted_bytes // self.sampled_bytes if self.sampled_bytes else size_bytes


def estimate(plan: PartitionPlan) -> Estimate:
    """Convert some batches of each segment of a plan.

    Raises `KlogError` if a sampled batch is damaged, or cannot be read.
    """
    total = Estimate()
    for task in plan.tasks:
        for source in task.sources:
            for start in _places(task, source):
                total += _sampled(task, source, start)
    return total


def _places(task: ConvertTask, source: Source) -> Iterator[int]:
    """Positions of batches, evenly over the source; the offset index says where batches start."""
    yield source.start_bytes
    length = source.end_bytes - source.start_bytes
    if length <= _PLACES * SAMPLE_BYTES:
        return
    wanted = [source.start_bytes + length * place // _PLACES for place in range(1, _PLACES)]
    index_path = task.source_path(FileKind.OFFSET_INDEX, source)
    for position in indexed_positions(index_path, source.start_bytes, source.end_bytes):
        if wanted and wanted[0] <= position:
            yield position
            wanted.pop(0)


def _sampled(task: ConvertTask, source: Source, start: int) -> Estimate:
    converter = BatchConverter(task.options, EpochOfOffset(task.epochs))
    table = BatchTable()
    path = task.source_path(FileKind.LOG, source)
    found = Estimate()
    with located(path):
        for data in verified_batches(
            path, source.end_bytes, table, start_bytes=start, buffer_bytes=SAMPLE_BYTES
        ):
            made = [*converter.take(data, table), *converter.finish()]
            found = Estimate(
                table.consumed_bytes, sum(len(batch.data) for batch in made), len(table), len(made)
            )
            break
    return found
