"""A gzipped copy of a segment, read as a file that ends where the copy is damaged or cut short.

The planner looks for the last valid batch of a copy. So it needs what was decompressed before the damage, and
what the damage is, instead of an error.
"""

from __future__ import annotations

import os
from typing import Any

from klog.formats.errors import StorageError
from klog.storage.files.gzipped import GzippedFile
from klog.storage.files.seekable import SeekableStream


class ReadableCopy(SeekableStream):
    """The plain bytes of `copy` up to its damage; `damage` is None until that was reached."""

    def __init__(self, copy: GzippedFile) -> None:
        super().__init__()
        self._copy = copy
        self.damage: StorageError | None = None

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 (io's own signature)
        """Fill a part of `buffer`; 0 at the end and at damage."""
        try:
            return self._copy.readinto(buffer)
        except StorageError as error:
            self.damage = error
            return 0

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a position from the start or from the present one, at most to the end of what is readable."""
        try:
            return self._copy.seek(offset, whence)
        except StorageError as error:
            if whence == os.SEEK_END:
                raise
            self.damage = error
            return self._copy.tell()

    def tell(self) -> int:
        """The position in the plain bytes."""
        return self._copy.tell()

    def close(self) -> None:
        """Close the copy."""
        self._copy.close()
        super().close()
