"""Counts fields that could not be decoded, for one error at the end."""

from __future__ import annotations

from klog.formats.errors import FormatError


class Failures:
    """How many fields could not be decoded, and what was wrong with the first."""

    def __init__(self) -> None:
        self.count = 0
        self._first = ""

    def add(self, place: str, why: str) -> None:
        """Count one field."""
        self.count += 1
        self._first = self._first or f"{place}: {why}"

    def error(self) -> FormatError | None:
        """The error to report, None if everything could be decoded."""
        if not self.count:
            return None
        fields = "1 key or value" if self.count == 1 else f"{self.count} keys or values"
        return FormatError(f"{fields} could not be decoded and stayed as they are; the first: {self._first}")
