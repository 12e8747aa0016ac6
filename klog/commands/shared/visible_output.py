"""Shows control characters in the text of records as escapes, if the output is a terminal."""

from __future__ import annotations

import codecs
import io
import re
from typing import Any, BinaryIO, cast

from klog.formats.visible import UNSAFE


class _VisibleOutput(io.RawIOBase):
    """Writes UTF-8 text to a terminal; newlines and tabs stay, other control characters become escapes."""

    def __init__(self, out: BinaryIO) -> None:
        super().__init__()
        self._out = out
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def isatty(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:  # noqa: ANN401 (any buffer)
        text = self._decoder.decode(bytes(data))
        self._out.write(UNSAFE.sub(_escaped, text).encode("utf-8", "backslashreplace"))
        return len(data)

    def flush(self) -> None:
        self._out.flush()


def _escaped(found: re.Match[str]) -> str:
    r"""The character as it is if it is a newline or tab, else in the form that JSON also knows (`\u001b`)."""
    return found[0] if found[0] in "\n\t" else f"\\u{ord(found[0]):04x}"


def visible_output(out: BinaryIO) -> BinaryIO:
    """The same stream, or if it is a terminal one that shows control characters as escapes."""
    return cast(BinaryIO, _VisibleOutput(out)) if out.isatty() else out
