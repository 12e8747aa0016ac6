"""Reads and writes records of internal topics, by functions that are made of their definitions.

Construct is not loaded. `derive_records` makes these functions (`_records`). Fields have the names of the
definition. A tagged field is there if the record has it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from klog.formats import _records
from klog.formats.errors import FormatError, UnsupportedFormatError
from klog.formats.packed import INT16
from klog.formats.record_functions import Reader
from klog.formats.values import Value

Writer: TypeAlias = Callable[..., bytes]


def version_of(data: bytes) -> int:
    """The version of a value, or the type of a key. Raises `FormatError`."""
    try:
        version: int = INT16.unpack_from(data)[0]
    except struct.error:
        raise _too_short(data) from None
    return version


def _too_short(data: bytes) -> FormatError:
    return FormatError("the record ends too early", position_bytes=len(data))


class RecordFields:
    """The fields of a message of internal topics, in all versions: a key, or a value."""

    def __init__(self, title: str) -> None:
        """`title` is a name in `derive_records.SOURCES`."""
        self._title = title
        self._readers: Final[Mapping[int, Reader]] = _records.READERS[title]
        self.writers: Final[Mapping[int, Writer]] = _records.WRITERS[title]
        """What `write` calls, by version: with the version, and the fields by their names."""

    def read(self, data: bytes) -> Value:
        """The fields of a record. Bytes after them are ignored. Raises `FormatError`."""
        try:
            (version,) = INT16.unpack_from(data)
        except struct.error:
            raise _too_short(data) from None
        reader = self._readers.get(version)
        if reader is None:
            known = ", ".join(map(str, self._readers))
            raise UnsupportedFormatError(
                f"{self._title} version {version} is not defined (known: {known})",
                position_bytes=INT16.size,
                cure="written by a newer Kafka than this klog knows, or damaged",
            )
        return reader(data, INT16.size)[0]

    def write(self, version: int, fields: Mapping[str, Value]) -> bytes:
        """A record of this version. Fields that it does not have are passed over. Raises `FormatError`."""
        return self.writers[version](version, **fields)
