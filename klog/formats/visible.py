"""Shows characters that a terminal obeys, and that would end a line of a log, as escapes."""

from __future__ import annotations

import re
from typing import Final

UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters, marks that change the direction of writing, separators of lines, lone surrogates."""

_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def visible(text: str) -> str:
    r"""The text with escapes (`\n`, `\x1b`, `\u202e`) for characters that a terminal obeys and does not show.

    These are control characters, changes of the direction of writing, and bytes that are no text.
    """
    return UNSAFE.sub(_escaped, text) if UNSAFE.search(text) else text


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that Python could not decode
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
