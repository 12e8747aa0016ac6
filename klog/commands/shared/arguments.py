"""Parses values of `klog dump-segment`'s options: offset ranges, times, patterns."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from klog.formats.errors import UsageError

_RANGE: Final = re.compile(r"(?P<first>[0-9]*)(?P<dots>\.\.)?(?P<last>[0-9]*)")
_EPOCH_MS: Final = re.compile(r"-?[0-9]+")
_AGO: Final = re.compile(r"(?:[0-9]+(?:ms|[smhdw]))+")
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def parse_offsets(text: str | None) -> tuple[int | None, int | None]:
    """First and last offset (both inclusive) of `A..B`, `A..`, `..B` or `A`. Raises `UsageError`."""
    if text is None:
        return None, None
    match = _RANGE.fullmatch(text)
    if match is None or not (match["first"] or match["last"]):
        raise UsageError(
            f"--offsets {text!r} is not a range", cure="write 100..200 (both included), 100.., ..200 or 100"
        )
    first = int(match["first"]) if match["first"] else None
    last = int(match["last"]) if match["last"] else None
    if not match["dots"]:
        last = first
    if first is not None and last is not None and last < first:
        raise UsageError(f"--offsets {text}: the range ends before it starts")
    return first, last


def parse_time(option: str, text: str | None, now: datetime) -> int | None:
    """Milliseconds since the epoch of an ISO 8601 time, of epoch milliseconds, or of a span back from `now`.

    A time without zone is local time. Raises `UsageError`.
    """
    if text is None:
        return None
    if _EPOCH_MS.fullmatch(text):
        return int(text)
    if _AGO.fullmatch(text):
        return epoch_ms(now) - parse_span(option, text)
    try:
        return epoch_ms(datetime.fromisoformat(text))
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"{option} {text!r} is not a time",
            cure="write 2026-11-21T09:30:00Z, milliseconds since 1970, or a span like 2h (that long ago)",
        ) from error


def parse_span(option: str, text: str) -> int:
    """Milliseconds of a span such as `10s` or `1h30m`. Raises `UsageError`."""
    if _AGO.fullmatch(text) is None:
        raise UsageError(f"{option} {text!r} is not a span of time", cure="write 500ms, 10s, 5m, 1h30m or 7d")
    return sum(int(number) * _UNIT_MS[unit] for number, unit in re.findall(r"([0-9]+)(ms|[smhdw])", text))


def epoch_ms(moment: datetime) -> int:
    """Milliseconds since the epoch, rounded down; a moment without zone is local time."""
    since = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def parse_pattern(text: str | None) -> re.Pattern[str] | None:
    """The regular expression of `--grep`. Raises `UsageError`."""
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"--grep {text!r} is not a regular expression: {error}") from error
