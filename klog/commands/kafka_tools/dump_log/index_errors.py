"""Collects the disagreements between indexes and logs, and prints them as `kafka-dump-log` does."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from klog.commands.kafka_tools.dump_log import java
from klog.formats.java_hash import hash_of_string
from klog.formats.visible import visible

Pairs = list[tuple[int, int]]


@dataclass(slots=True)
class IndexErrors:
    """Disagreements by absolute path, in the order in which they were found."""

    mismatches: dict[str, Pairs] = field(default_factory=dict)
    timestamps: dict[str, Pairs] = field(default_factory=dict)
    out_of_order: dict[str, Pairs] = field(default_factory=dict)
    not_found: dict[str, Pairs] = field(default_factory=dict)
    gaps: dict[str, Pairs] = field(default_factory=dict)

    def report(self) -> bool:
        """Print all on stderr in the tool's order; returns whether an index is wrong.

        Gaps between offsets are no damage: compaction causes them.
        """
        for path in _in_order(self.mismatches):
            print_error(f"Mismatches in :{path}")
            for index_offset, log_offset in reversed(self.mismatches[path]):
                print_error(f"  Index offset: {index_offset}, log offset: {log_offset}")
        for path in _in_order(self.timestamps):
            print_error(f"Found timestamp mismatch in :{path}")
            for index_timestamp, log_timestamp in self.timestamps[path]:
                print_error(f"  Index timestamp: {index_timestamp}, log timestamp: {log_timestamp}")
        for path in _in_order(self.out_of_order):
            print_error(f"Found out of order timestamp in :{path}")
            for index_timestamp, previous in self.out_of_order[path]:
                print_error(f"  Index timestamp: {index_timestamp}, Previously indexed timestamp: {previous}")
        for path in _in_order(self.not_found):
            print_error("The following indexed offsets are not found in the log.")
            for index_offset, log_offset in self.not_found[path]:
                print_error(f"Indexed offset: {index_offset}, found log offset: {log_offset}")
        for path in _in_order(self.gaps):
            print_error(f"Non-consecutive offsets in {path}")
            for first, second in reversed(self.gaps[path]):
                print_error(f"  {first} is followed by {second}")
        return bool(self.mismatches or self.timestamps or self.out_of_order or self.not_found)


def _in_order(found: dict[str, Pairs]) -> list[str]:
    return java.in_scala_order(found, hash_of_string)


def print_error(line: str) -> None:
    """Print a line on stderr, where the tool prints its errors."""
    print(visible(line) if sys.stderr.isatty() else line, file=sys.stderr)  # noqa: T201 (the tool's own text)
