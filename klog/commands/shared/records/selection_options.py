"""The options that select records, for `klog dump-segment` and `klog consume`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from klog.commands.shared.arguments import parse_offsets, parse_pattern, parse_time
from klog.commands.shared.option_sets import optional
from klog.commands.shared.records.plan import Selection

SELECT: Final = "Selection"
ROWS: Final = "Rows"


@dataclass(frozen=True, slots=True)
class SelectionOptions:
    """Which records to show."""

    offsets: str | None = optional(
        None, "Only these offsets, both included: 5..9, 5.., ..9, 5.", panel=SELECT, metavar="A..B"
    )
    since: str | None = optional(
        None,
        "Only timestamps from this on: ISO 8601, epoch ms, or a span like 2h (that long ago).",
        panel=SELECT,
        metavar="TIME",
    )
    until: str | None = optional(None, "Only timestamps before this.", panel=SELECT, metavar="TIME")
    key: str | None = optional(None, "Only records with exactly this key.", panel=SELECT, metavar="TEXT")
    grep: str | None = optional(
        None, "Only records whose key or value matches.", panel=SELECT, metavar="REGEX"
    )
    limit: int | None = optional(None, "Stop after N rows.", panel=SELECT, metavar="N", least=0)

    def selection(self, now: datetime) -> Selection:
        """The selection; spans count back from `now`. Raises UsageError."""
        first_offset, last_offset = parse_offsets(self.offsets)
        return Selection(
            first_offset=first_offset,
            last_offset=last_offset,
            since_ms=parse_time("--since", self.since, now),
            until_ms=parse_time("--until", self.until, now),
            key=None if self.key is None else self.key.encode("utf-8", "surrogateescape"),
            grep=parse_pattern(self.grep),
            limit=self.limit,
        )
