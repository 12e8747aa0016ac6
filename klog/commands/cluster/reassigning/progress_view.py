"""Shows how far copies are: as rows for programs, as a table for people, and as lines that are replaced."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from math import ceil
from typing import Final

from klog.admin.reassign.progress import Copy, Progress
from klog.commands.shared.cells import human_bytes
from klog.commands.shared.messages import columns_of, print_note, print_report
from klog.commands.shared.tables import Row

_LINES: Final = 8
_WAITS: Final = "waits for the throttle"
_REPORT_EVERY_S: Final = 30.0
_MINUTE_S: Final = 60
_PER_CENT: Final = 100


def json_row(copy: Copy, time_ms: int) -> Row:
    """The fields of a copy for programs; a size that nobody knows yet is 0."""
    rate, left_s = copy.rate_bytes_per_s, copy.left_s
    return {
        "timestamp": time_ms,
        "topic": copy.key.partition.topic,
        "partition": copy.key.partition.partition,
        "broker": copy.key.broker_id,
        "logDir": copy.key.log_dir,
        "copiedBytes": copy.copied_bytes,
        "totalBytes": copy.total_bytes,
        "bytesPerSecond": None if rate is None else round(rate),
        "secondsLeft": None if left_s is None else round(left_s),
        "offsetLag": copy.offset_lag,
        "brokerAnswers": copy.is_reachable,
    }


def table_row(copy: Copy) -> Row:
    """The fields of a copy for people."""
    rate = copy.rate_bytes_per_s
    return {
        "partition": str(copy.key.partition),
        "to": f"broker {copy.key.broker_id}" if copy.is_reachable else f"broker {copy.key.broker_id} (down)",
        "copied": human_bytes(copy.copied_bytes),
        "of": human_bytes(copy.total_bytes),
        "done": _share(copy.copied_bytes, copy.total_bytes),
        "rate": None if rate is None else f"{human_bytes(rate)}/s",
        "left": _WAITS if copy.is_throttled else duration(copy.left_s),
        "lag": copy.offset_lag,
        "logDir": copy.key.log_dir,
    }


def table_rows(copies: Sequence[Copy]) -> list[Row]:
    """The copies for people, without the lag if none has a replica whose lag is known."""
    rows = [table_row(copy) for copy in copies]
    if any(copy.offset_lag is not None for copy in copies):
        return rows
    return [{name: row[name] for name in row if name != "lag"} for row in rows]


def summary(copies: Sequence[Copy]) -> str:
    """All copies in one line."""
    copied, total = (
        sum(sizes) for sizes in zip(*((c.copied_bytes, c.total_bytes) for c in copies), strict=True)
    )
    text = (
        f"{len(copies)} {'copy' if len(copies) == 1 else 'copies'}: {human_bytes(copied)} of "
        f"{human_bytes(total)} ({_share(copied, total)})"
    )
    rates = [copy.rate_bytes_per_s for copy in copies if copy.rate_bytes_per_s is not None]
    if not rates:
        return text
    if sum(rates):
        left = f"{duration(max(0, total - copied) / sum(rates))} left"
    else:
        left = _WAITS if any(copy.is_throttled for copy in copies) else "time left unknown"
    return f"{text}, {human_bytes(sum(rates))}/s, {left}"


def duration(seconds: float | None) -> str | None:
    """A time as `1 h 5 min`, `2 min 3 s` or `4 s`, rounded up; None if it is not known."""
    if seconds is None:
        return None
    minutes, rest = divmod(ceil(seconds), _MINUTE_S)
    hours, minutes = divmod(minutes, _MINUTE_S)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _share(copied: int, total: int) -> str:
    return f"{min(_PER_CENT, _PER_CENT * copied // total)} %" if total else "-"


class ProgressLines:
    """Says on stderr how far a batch is: in lines that are replaced on a terminal, now and then elsewhere."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._last_s = monotonic_s()
        self._shown = 0
        self._down: frozenset[int] = frozenset()

    def show(self, progress: Progress) -> None:
        """Show a measurement."""
        down = frozenset(progress.failures)
        if down - self._down:
            self.clear()
            for broker in sorted(down - self._down):
                print_note(f"broker {broker} does not answer: {progress.failures[broker]}")
        self._down = down
        if columns_of(sys.stderr) is None:
            if progress.copies and self._monotonic_s() - self._last_s >= _REPORT_EVERY_S:
                self._last_s = self._monotonic_s()
                print_report(summary(progress.copies))
            return
        self.clear()
        if progress.copies:
            self._write(progress.copies)

    def _write(self, copies: Sequence[Copy]) -> None:
        columns = columns_of(sys.stderr) or 1
        lines = [summary(copies), *(_line(copy, columns) for copy in copies[:_LINES])]
        if len(copies) > _LINES:
            lines.append(f"  and {len(copies) - _LINES} more")
        sys.stderr.write("\n".join((*lines, "")))
        sys.stderr.flush()
        self._shown = sum(-(-len(line) // columns) for line in lines)

    def clear(self) -> None:
        """Remove what is shown, so that other lines can be written."""
        if self._shown:
            sys.stderr.write(f"\x1b[{self._shown}A\x1b[J")
            sys.stderr.flush()
            self._shown = 0


def _line(copy: Copy, columns: int) -> str:
    """A copy in one line. What does not fit is left out, the time left first."""
    row = table_row(copy)
    line = f"  {row['partition']} to {row['to']}: {row['done']} of {row['of']}"
    left = row["left"] if copy.is_throttled else row["left"] and f"{row['left']} left"
    for part in (row["rate"], left):
        if part and len(line) + len(f", {part}") < columns:
            line += f", {part}"
    return line
