"""How an export goes, as lines in a log: for drivers of clusters, whose stderr is no terminal."""

from __future__ import annotations

import sys
import time
from typing import Final, Self

from klog.commands.dump.cells import human_bytes
from klog.export.splits import Plan

INTERVAL_S: Final = 10.0


class Lines:
    """A line at the start of each stage and every ten seconds: done of how much, rate, time left."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._what = ""
        self._total_bytes = self._done_bytes = 0
        self._began_s = self._told_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def planned(self, plan: Plan, pending_bytes: int, what: str) -> None:
        """A stage begins."""
        self._what, self._total_bytes, self._done_bytes = what, pending_bytes, 0
        self._began_s = self._told_s = time.monotonic()
        self._tell(f"{what} {len(plan.partitions)} partitions, {human_bytes(pending_bytes)} of segments")

    def advanced(self, size_bytes: int) -> None:
        """So much more of it is done."""
        self._done_bytes += size_bytes
        now_s = time.monotonic()
        if self._done_bytes and now_s - self._told_s >= INTERVAL_S:
            self._told_s = now_s
            rate = self._done_bytes / (now_s - self._began_s)
            left_s = (self._total_bytes - self._done_bytes) / rate
            self._tell(
                f"{self._what}: {human_bytes(self._done_bytes)} of {human_bytes(self._total_bytes)}, "
                f"{human_bytes(rate)}/s, about {left_s:.0f} s left"
            )

    def _tell(self, line: str) -> None:
        if not self._quiet:
            print(line, file=sys.stderr, flush=True)  # noqa: T201
