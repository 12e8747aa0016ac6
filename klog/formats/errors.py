"""The errors that klog raises, and nothing else: each says where, what and what to do.

Every error that bad input can cause is a `KlogError`; a caller that catches it has caught all of them.
"""

from __future__ import annotations


class KlogError(Exception):
    """Base of all errors of klog.

    `what` is the problem in one clause, `cure` what the user can do about it, `file` and
    `position_bytes` where it was found (None where that is unknown or has no meaning).
    """

    def __init__(
        self,
        what: str,
        *,
        file: str | None = None,
        position_bytes: int | None = None,
        cure: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.file = file
        self.position_bytes = position_bytes
        self.cure = cure

    def at(self, file: str | None = None, position_bytes: int | None = None) -> KlogError:
        """The same error with the place filled in where the raiser did not know it; returns self."""
        if self.file is None:
            self.file = file
        if self.position_bytes is None:
            self.position_bytes = position_bytes
        return self

    def __str__(self) -> str:
        place = self.file or ""
        if self.position_bytes is not None:
            place = f"{place} at byte {self.position_bytes}" if place else f"byte {self.position_bytes}"
        text = f"{place}: {self.what}" if place else self.what
        return f"{text} ({self.cure})" if self.cure else text


class FormatError(KlogError):
    """Bytes or text that do not fit their format's definition."""


class CorruptRecordError(FormatError):
    """A batch or record that Kafka's reader would refuse (checksum, sizes, counts, offsets)."""


class UnsupportedFormatError(FormatError):
    """A magic, codec or version that this klog (or the format itself) does not know."""


class CompressionError(CorruptRecordError):
    """A compressed block that does not decompress."""


class DecompressionLimitError(CompressionError):
    """A compressed block that grows past the limit that the caller set."""


class UsageError(KlogError):
    """A call or option that makes no sense; the command line exits with 2."""


class StorageError(KlogError):
    """A file or directory that cannot be opened, read or written."""
