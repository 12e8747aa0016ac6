"""One problem that `verify` found: the file, what is wrong, what Kafka does about it, and the command that
repairs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """An error costs data, service or correct answers. Kafka itself repairs or ignores a note."""

    ERROR = "error"
    NOTE = "note"


RECOVER: Final = "klog recover"
REBUILD: Final = "klog rebuild-index"
OFFLINE: Final = "takes the log directory offline where it cannot read this either"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of one file. `position` is in bytes; `cure` is a command or advice."""

    file: str
    what: str
    kafka: str
    cure: str = ""
    severity: Severity = Severity.ERROR
    position: int | None = None
    offset: int | None = None


def note(file: str, what: str, kafka: str, cure: str = "") -> Problem:
    """A problem that does not count as a failure."""
    return Problem(file, what, kafka, cure, Severity.NOTE)
