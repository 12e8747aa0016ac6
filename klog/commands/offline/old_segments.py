"""Segments that Kafka 4 does not read, for `klog metadata convert`: what converting them needs and does."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from klog.commands.offline.locks import hold
from klog.commands.shared.cells import human_bytes
from klog.commands.shared.terminal import note_slowness, progress
from klog.formats.errors import KlogError, StorageError
from klog.jobs.cores import available_cores

if TYPE_CHECKING:
    from klog.cluster_metadata.log_sizes import LogSize
    from klog.convert.partition_plan import PartitionPlan


@dataclass(frozen=True, slots=True)
class Conversion:
    """What `klog convert --all` of the partitions with old segments in a log directory needs, and may use."""

    directory: str
    partitions: Sequence[PartitionPlan]
    converted_bytes: int
    free_bytes: int
    seconds: float

    @property
    def command(self) -> str:
        """The command that does it."""
        return f"klog convert --all {self.directory}"


def conversions(logs: Sequence[LogSize]) -> list[Conversion]:
    """What the log directories with old segments need. Some batches are converted to know it.

    Raises `KlogError` if files cannot be read.
    """
    from klog.convert.forecast import forecast

    found = []
    for each in logs:
        if each.old_partitions:
            plans = _plans(each.old_partitions)
            needs = forecast(plans, time.perf_counter)
            free_bytes = shutil.disk_usage(each.directory).free
            seconds = needs.seconds / available_cores()
            found.append(Conversion(each.directory, plans, needs.converted_bytes, free_bytes, seconds))
    return found


def require_space(needed: Sequence[Conversion]) -> None:
    """Raises StorageError if a disk has less free than the new segments need."""
    for each in needed:
        if each.converted_bytes > each.free_bytes:
            about, free = human_bytes(each.converted_bytes), human_bytes(each.free_bytes)
            raise StorageError(
                f"converted segments need about {about}, and {free} are free",
                file=each.directory,
                cure="klog convert of some partitions at a time needs less",
            )


def convert_old(needed: Sequence[Conversion], *, quiet: bool) -> None:
    """Converts the partitions, as `klog convert --all` does. Raises `KlogError`; a repeated run goes on."""
    from klog.convert.run_convert import pending_bytes, pool, run_convert

    for each in needed:
        total = pending_bytes(each.partitions, verifies=False)
        note_slowness(total, quiet=quiet)
        with (
            hold([each.directory], changes=True),
            progress("Converting", total, quiet=quiet) as advance,
        ):
            for _, outcome in run_convert(each.partitions, pool(available_cores()), on_bytes=advance):
                if isinstance(outcome, KlogError):
                    raise outcome


def _plans(partitions: Sequence[str]) -> list[PartitionPlan]:
    from klog.convert.options import ConvertOptions
    from klog.convert.planning import plan_partition

    options = ConvertOptions(converts_active=True)
    plans: list[PartitionPlan] = []
    number = 0
    for path in map(os.path.abspath, partitions):
        plan = plan_partition(path, path, options, high_watermark=None, first_number=number)
        number += len(plan.tasks)
        plans.append(plan)
    return plans
