"""The errors that klog raises. Each says where the problem is, what it is and what to do.

Every error that bad input can cause is a `KlogError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class KlogError(Exception):
    """Base of all errors of klog.

    `what` is the problem in one clause, `cure` what the user can do about it. `file` and `position_bytes` are
    the place (None if it is unknown or has no meaning).
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
        """Fill in the place if it is not known yet; returns the same error."""
        if self.file is None:
            self.file = file
        if self.position_bytes is None:
            self.position_bytes = position_bytes
        return self

    @property
    def explanation(self) -> str:
        """What and cure, without the place."""
        return f"{self.what} ({self.cure})" if self.cure else self.what

    def __str__(self) -> str:
        place = self.file or ""
        if self.position_bytes is not None:
            place = f"{place} at byte {self.position_bytes}" if place else f"byte {self.position_bytes}"
        return f"{place}: {self.explanation}" if place else self.explanation


class FormatError(KlogError):
    """Bytes or text that do not fit the definition of their format."""


class CorruptRecordError(FormatError):
    """A batch or record that Kafka's reader refuses (checksum, sizes, counts, offsets)."""


class UnsupportedFormatError(FormatError):
    """A magic, codec or version that this klog, or the format itself, does not know."""


class CompressionError(CorruptRecordError):
    """A compressed block that cannot be decompressed."""


class DecompressionLimitError(CompressionError):
    """A compressed block that is larger than the limit that the caller set."""


class UsageError(KlogError):
    """A call or option with an invalid argument; the command line exits with 2."""


class MissingInputError(UsageError):
    """An argument that names what is not there, or is not Kafka's; the command line exits with 1."""


class StorageError(KlogError):
    """A file or directory that cannot be opened, read or written."""


@contextmanager
def placed(file: str | None = None, position_bytes: int | None = None) -> Iterator[None]:
    """Fill in the place of an error of the block, as `KlogError.at`."""
    try:
        yield
    except KlogError as error:
        raise error.at(file, position_bytes) from None


class ChecksumCodeError(Exception):
    """The code that computes checksums on this machine is wrong, so nothing is known about the data.

    It is no `KlogError`: what goes on after one of those, with the next file or replica, must stop here.
    """
