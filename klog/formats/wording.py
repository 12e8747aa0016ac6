"""Words for lists in messages."""

from __future__ import annotations

from collections.abc import Sequence


def first_of(named: Sequence[object], most: int) -> str:
    """The first `most` with commas between them, and how many there are beyond: `a, b and 3 more`."""
    beyond = len(named) - most
    return ", ".join(map(str, named[:most])) + (f" and {beyond} more" if beyond > 0 else "")
