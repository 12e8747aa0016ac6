"""Shows the progress of an export as lines of a log, for drivers of clusters: their stderr is no terminal."""

from __future__ import annotations

import time
from typing import Final, Self

from klog.commands.shared.cells import human_bytes
from klog.commands.shared.messages import print_report
from klog.commands.shared.terminal import count_of
from klog.replicas.splits import Plan

INTERVAL_S: Final = 10.0


class ProgressLines:
    """Prints a line at the start of each stage and every ten seconds: bytes done, rate, time left."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._what = ""
        self._total_bytes = self._done_bytes = 0
        self._began_s = self._printed_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to close."""

    def planned(self, plan: Plan, pending_bytes: int, what: str) -> None:
        """A stage of the job begins."""
        self._what, self._total_bytes, self._done_bytes = what, pending_bytes, 0
        self._began_s = self._printed_s = time.monotonic()
        partitions = count_of(len(plan.partitions), "partition")
        self._print(f"{what} {partitions}, {human_bytes(pending_bytes)} of segments")

    def advanced(self, size_bytes: int) -> None:
        """That many bytes more of the stage are done."""
        self._done_bytes += size_bytes
        now_s = time.monotonic()
        if self._done_bytes and now_s - self._printed_s >= INTERVAL_S:
            self._printed_s = now_s
            rate = self._done_bytes / (now_s - self._began_s)
            left_s = (self._total_bytes - self._done_bytes) / rate
            self._print(
                f"{self._what}: {human_bytes(self._done_bytes)} of {human_bytes(self._total_bytes)}, "
                f"{human_bytes(rate)}/s, about {left_s:.0f} s left"
            )

    def _print(self, line: str) -> None:
        if not self._quiet:
            print_report(line)
