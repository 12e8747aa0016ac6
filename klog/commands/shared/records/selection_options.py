"""The options that select records, for `klog dump-segment` and `klog consume`."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from klog.commands.shared.arguments import parse_offsets, parse_pattern, parse_time
from klog.commands.shared.option_sets import option_set, valued
from klog.commands.shared.records.plan import Selection

SELECT: Final = "Selection"
ROWS: Final = "Rows"


@option_set(SELECT)
class SelectionOptions:
    """Which records to show."""

    offsets: str | None = valued("A..B", "Only these offsets, both included: 5..9, 5.., ..9, 5.")
    since: str | None = valued(
        "TIME", "Only timestamps from this on: ISO 8601, epoch ms, or a span like 2h (that long ago)."
    )
    until: str | None = valued("TIME", "Only timestamps before this.")
    key: str | None = valued("TEXT", "Only records with exactly this key.")
    grep: str | None = valued("REGEX", "Only records whose key or value matches.")
    limit: int | None = valued("N", "Stop after N rows.", least=0)

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
