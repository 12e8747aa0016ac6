"""One thing that `verify` found: where, what, what Kafka makes of it, and which command mends it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """An error costs data, service or truth; a note is something that Kafka itself tidies up or ignores."""

    ERROR = "error"
    NOTE = "note"


RECOVER: Final = "klog recover"
REBUILD: Final = "klog rebuild-index"
OFFLINE: Final = "takes the log directory offline where it cannot read this either"


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding about one file. `position` is in bytes; `cure` a command or advice."""

    file: str
    what: str
    kafka: str
    cure: str = ""
    severity: Severity = Severity.ERROR
    position: int | None = None
    offset: int | None = None


def note(file: str, what: str, kafka: str, cure: str = "") -> Problem:
    """A finding that fails nothing."""
    return Problem(file, what, kafka, cure, Severity.NOTE)
