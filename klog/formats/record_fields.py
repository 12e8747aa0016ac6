"""Reads and writes records of internal topics, by functions that are made of their definitions.

Construct is not loaded: `derive_records` makes shapes of the definitions (`_records`). The function of a
version is made of its shape when it is needed first. Fields have the names of the definition. A tagged field
is there if the record has it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from klog.formats import _records
from klog.formats.errors import FormatError, UnsupportedFormatError
from klog.formats.fast_writers import VersionWriter, version_writer
from klog.formats.packed import INT16
from klog.formats.reader_source import Reader, kafka_reader
from klog.formats.values import Value


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
        self._shapes: Final = _records.FIELDS[title]
        self._readers: Final[dict[int, Reader]] = {}
        self._writers: Final[dict[int, VersionWriter]] = {}

    def read(self, data: bytes) -> Value:
        """The fields of a record. Bytes after them are ignored. Raises `FormatError`."""
        try:
            (version,) = INT16.unpack_from(data)
        except struct.error:
            raise _too_short(data) from None
        reader = self._readers.get(version) or self._reader(version)
        return reader(data, INT16.size)[0]

    def _reader(self, version: int) -> Reader:
        if version not in self._shapes:
            known = ", ".join(map(str, self._shapes))
            raise UnsupportedFormatError(
                f"{self._title} version {version} is not defined (known: {known})",
                position_bytes=INT16.size,
                cure="written by a newer Kafka than this klog knows, or damaged",
            )
        found = self._readers[version] = kafka_reader(self._shapes[version])
        return found

    def write(self, version: int, fields: Mapping[str, Value]) -> bytes:
        """A record of this version. Fields that it does not have are passed over. Raises `FormatError`."""
        writer = self._writers.get(version) or self.writer(version)
        return writer(version, **fields)

    def writer(self, version: int) -> VersionWriter:
        """What `write` calls: with the version, and the fields by their names."""
        if version not in self._writers:
            self._writers[version] = version_writer(self._shapes[version])
        return self._writers[version]
