"""Reads and writes records of internal topics, by functions that are made of their definitions.

Construct is not loaded: `derive_records` makes shapes of the definitions (`_records`). The function of a
version is made of its shape when it is needed first, and what makes it is loaded then. Fields have the names
of the definition. A tagged field is there if the record has it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from klog.formats.errors import FormatError, UnsupportedFormatError
from klog.formats.packed import INT16
from klog.formats.values import Value

if TYPE_CHECKING:
    from klog.formats.fast_writers import VersionWriter
    from klog.formats.reader_source import Reader

Made = TypeVar("Made")


def version_of(data: bytes) -> int:
    """The version of a value, or the type of a key. Raises `FormatError`."""
    try:
        version: int = INT16.unpack_from(data)[0]
    except struct.error:
        raise _too_short(data) from None
    return version


def _too_short(data: bytes) -> FormatError:
    return FormatError("the record ends too early", position_bytes=len(data))


class _Made(dict[int, Made]):
    """Functions by the versions that they are of, made when they are needed first."""

    def __init__(self, make: Callable[[int], Made]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, version: int) -> Made:
        found = self[version] = self._make(version)
        return found


class RecordFields:
    """The fields of a message of internal topics, in all versions: a key, or a value."""

    def __init__(self, title: str) -> None:
        """`title` is a name in `derive_records.SOURCES`."""
        self._title = title
        self._readers: Final[_Made[Reader]] = _Made(self._reader)
        self.writers: Final[_Made[VersionWriter]] = _Made(self._writer)
        """What `write` calls, by versions: with the version, and the fields by their names."""

    def read(self, data: bytes) -> Value:
        """The fields of a record. Bytes after them are ignored. Raises `FormatError`."""
        try:
            (version,) = INT16.unpack_from(data)
        except struct.error:
            raise _too_short(data) from None
        return self._readers[version](data, INT16.size)[0]

    def write(self, version: int, fields: Mapping[str, Value]) -> bytes:
        """A record of this version. Fields that it does not have are passed over. Raises `FormatError`."""
        return self.writers[version](version, **fields)

    def _reader(self, version: int) -> Reader:
        from klog.formats._records import FIELDS
        from klog.formats.reader_source import kafka_reader

        shapes = FIELDS[self._title]
        if version not in shapes:
            known = ", ".join(map(str, shapes))
            raise UnsupportedFormatError(
                f"{self._title} version {version} is not defined (known: {known})",
                position_bytes=INT16.size,
                cure="written by a newer Kafka than this klog knows, or damaged",
            )
        return kafka_reader(shapes[version])

    def _writer(self, version: int) -> VersionWriter:
        from klog.formats._records import FIELDS
        from klog.formats.fast_writers import version_writer

        return version_writer(FIELDS[self._title][version])
