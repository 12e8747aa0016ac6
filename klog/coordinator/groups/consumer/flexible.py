"""Fields of flexible messages (KIP-482), in records of consumer groups: compact lengths and tags."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, TypeVar

from klog.coordinator.groups.consumer.values import Partitions, by_topic
from klog.coordinator.runtime.record_fields import FieldReader
from klog.formats.errors import FormatError
from klog.formats.names import decode_uuid, encode_uuid
from klog.formats.packed import INT32
from klog.formats.varints import uvarint

T = TypeVar("T")

_NULL: Final = b"\0"
_NO_TAGS: Final = b"\0"
_UUID_BYTES: Final = 16
_LAST_SHIFT: Final = 28

_id_bytes = lru_cache(maxsize=4096)(decode_uuid)
_id_text = lru_cache(maxsize=4096)(encode_uuid)


# -- writing -------------------------------------------------------------------------------------------------


def compact_string(text: str | None) -> bytes:
    """A string, or null."""
    return _NULL if text is None else compact_bytes(text.encode("utf-8", "surrogatepass"))


def compact_bytes(data: bytes) -> bytes:
    """Bytes with their length."""
    return uvarint(len(data) + 1) + data


def array(items: Iterable[bytes]) -> bytes:
    """An array of items that are written already."""
    parts = list(items)
    return uvarint(len(parts) + 1) + b"".join(parts)


def tagged(tag: int, value: bytes) -> bytes:
    """The end of a struct that has one tagged field."""
    return uvarint(1) + uvarint(tag) + uvarint(len(value)) + value


def partitions(assigned: Partitions) -> bytes:
    """An array of topics by id, each with its partitions."""
    return array(
        _id_bytes(topic_id) + array(map(INT32.pack, numbers)) + _NO_TAGS
        for topic_id, numbers in by_topic(assigned).items()
    )


# -- reading -------------------------------------------------------------------------------------------------


class Reader(FieldReader):
    """Reads the fields of flexible messages, too."""

    __slots__ = ()

    def uvarint(self) -> int:
        """An unsigned number of 1 to 5 bytes."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > _LAST_SHIFT:
                raise FormatError("a length has more than 5 bytes", position_bytes=self.position)

    def nullable_string(self) -> str | None:
        """A compact string, or None."""
        size = self.uvarint()
        return None if size == 0 else self.text(size - 1)

    def string(self) -> str:
        """A compact string that is not null."""
        return self.text(self.uvarint() - 1)

    def compact_bytes(self) -> bytes:
        """Compact bytes that are not null."""
        return self.take(self.uvarint() - 1)

    def items(self, read: Callable[[Reader], T]) -> list[T]:
        """A compact array. Every item takes a byte, so a count cannot exceed the bytes that are left."""
        count = self.uvarint() - 1
        if not 0 <= count <= len(self.data) - self.position:
            raise FormatError(f"an array of {count} items does not fit", position_bytes=self.position)
        return [read(self) for _ in range(count)]

    def tags(self) -> dict[int, bytes]:
        """The tagged fields at the end of a struct."""
        return {self.uvarint(): self.bytes_of_tag() for _ in range(self.uvarint())}

    def bytes_of_tag(self) -> bytes:
        """The value of a tagged field."""
        return self.take(self.uvarint())

    def partitions(self) -> Partitions:
        """An array of topics by id, each with its partitions."""
        assigned: set[tuple[str, int]] = set()
        for topic_id, numbers in self.items(_read_topic):
            assigned.update((topic_id, number) for number in numbers)
        return frozenset(assigned)


def _read_topic(reader: Reader) -> tuple[str, list[int]]:
    topic_id = _id_text(reader.take(_UUID_BYTES))
    numbers = reader.items(_read_int32)
    reader.tags()
    return topic_id, numbers


def _read_int32(reader: Reader) -> int:
    return reader.number(INT32)
