"""The options that select records, for `klog dump-segment` and `klog consume`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

import typer
from typer.models import OptionInfo

from klog.commands.dump.arguments import parse_offsets, parse_pattern, parse_time
from klog.commands.dump.plan import Selection

SELECT: Final = "Selection"


def _option(metavar: str, summary: str, least: int | None = None) -> OptionInfo:
    info: OptionInfo = typer.Option(metavar=metavar, help=summary, min=least, rich_help_panel=SELECT)
    return info


@dataclass(frozen=True, slots=True)
class SelectionOptions:
    """Which records to show."""

    offsets: Annotated[
        str | None, _option("A..B", "Only these offsets, both included: 5..9, 5.., ..9, 5.")
    ] = None
    since: Annotated[
        str | None,
        _option(
            "TIME", "Only timestamps from this on: ISO 8601, epoch ms, or a span like 2h (that long ago)."
        ),
    ] = None
    until: Annotated[str | None, _option("TIME", "Only timestamps before this.")] = None
    key: Annotated[str | None, _option("TEXT", "Only records with exactly this key.")] = None
    grep: Annotated[str | None, _option("REGEX", "Only records whose key or value matches.")] = None
    limit: Annotated[int | None, _option("N", "Stop after N rows.", 0)] = None

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
