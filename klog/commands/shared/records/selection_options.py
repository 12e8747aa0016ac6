"""The options that select records, for `klog dump-segment` and `klog consume`."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from klog.commands.shared.arguments import parse_offsets, parse_pattern, parse_time
from klog.commands.shared.option_sets import option_set, optional
from klog.commands.shared.records.plan import Selection

SELECT: Final = "Selection"
ROWS: Final = "Rows"


@option_set(SELECT)
class SelectionOptions:
    """Which records to show."""

    offsets: str | None = optional(
        None, "Only these offsets, both included: 5..9, 5.., ..9, 5.", metavar="A..B"
    )
    since: str | None = optional(
        None,
        "Only timestamps from this on: ISO 8601, epoch ms, or a span like 2h (that long ago).",
        metavar="TIME",
    )
    until: str | None = optional(None, "Only timestamps before this.", metavar="TIME")
    key: str | None = optional(None, "Only records with exactly this key.", metavar="TEXT")
    grep: str | None = optional(None, "Only records whose key or value matches.", metavar="REGEX")
    limit: int | None = optional(None, "Stop after N rows.", metavar="N", least=0)

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
