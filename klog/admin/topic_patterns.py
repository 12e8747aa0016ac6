"""Selects topics by regular expressions, as Kafka's tools do.

Rules: the include list of `kafka-topics --topic`. Spaces and surrounding quotes are removed, a comma
separates alternatives, and the whole name must match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from klog.formats.errors import UsageError

_CURE: Final = "escape characters with a meaning by a backslash: 'orders\\.eu'"


def include_list(text: str) -> re.Pattern[str]:
    """The pattern of `--topic`. Raises UsageError if it is no regular expression."""
    joined = text.strip().replace(",", "|").replace(" ", "")
    return compiled(re.sub("[\"']+$", "", re.sub("^[\"']+", "", joined)))


def compiled(text: str) -> re.Pattern[str]:
    """The pattern of a regular expression. Raises UsageError if it is none."""
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"{text!r} is not a regular expression: {error}", cure=_CURE) from error


def matching(pattern: re.Pattern[str], names: Iterable[str]) -> list[str]:
    """The names that match as a whole."""
    return [name for name in names if pattern.fullmatch(name)]
