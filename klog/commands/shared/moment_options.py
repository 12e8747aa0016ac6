"""The options that name a moment of a backup repository, and what of it is wanted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klog.commands.shared.arguments import parse_time
from klog.commands.shared.option_sets import valued
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.backup.restoring.request import RestoreRequest
    from klog.formats.names import TopicPartition

_OFFSET_LINE: Final = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]+):(?P<partition>[0-9]{1,9}):(?P<offset>[0-9]{1,18})"
)


@dataclass(frozen=True, slots=True)
class MomentOptions:
    """A moment of a backup repository. Without any option it is the newest backup."""

    at: str | None = valued(
        "TIME", "All that had arrived by this time: ISO 8601, or a span back from now such as 2h."
    )
    backup: str | None = valued("ID", "What this backup has.")
    offsets: Path | None = valued(
        "FILE",
        "Partitions end at these offsets: lines TOPIC:PARTITION:OFFSET, as kafka-get-offsets prints them.",
    )
    topic: list[str] | None = valued(
        "PATTERN", "Only topics that match as a whole (a regular expression; repeatable).", "--topic", "-t"
    )

    def request(self) -> RestoreRequest:
        """The request that the options make. Raises UsageError."""
        from klog.admin.topic_patterns import include_list
        from klog.backup.restoring.request import RestoreRequest

        if self.at is not None and self.backup is not None:
            raise UsageError("--at and --backup: give one of both")
        patterns = [include_list(text) for text in self.topic or ()]
        return RestoreRequest(
            at_ms=parse_time("--at", self.at, datetime.now(UTC)),
            backup=self.backup,
            offsets={} if self.offsets is None else _offsets(self.offsets),
            wants=lambda topic: not patterns or any(each.fullmatch(topic) for each in patterns),
        )


def _offsets(path: Path) -> Mapping[TopicPartition, int]:
    from klog.formats.names import TopicPartition
    from klog.storage.files.files import read_small

    found = {}
    for number, line in enumerate(read_small(path).decode("utf-8", "replace").splitlines(), 1):
        if not line.strip():
            continue
        match = _OFFSET_LINE.fullmatch(line.strip())
        if match is None:
            raise UsageError(
                f"line {number} is not TOPIC:PARTITION:OFFSET: {line.strip()[:80]!r}", file=str(path)
            )
        found[TopicPartition(match["topic"], int(match["partition"]))] = int(match["offset"])
    return found
