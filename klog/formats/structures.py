"""Building blocks of several fields: sized and bounded ones, tagged fields, versions, repetition.

Rules: Kafka's protocol guide and KIP-482 (tagged fields). As in `primitives`, sizes and counts are compared
with the bytes that exist, and values are written back as they were read.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import construct as c

from klog.formats.primitives import (
    Located,
    UVarInt,
    Variable,
    first_byte,
    length_name,
    read_length,
    remaining_bytes,
    require_list,
    take,
)
from klog.formats.values import Value


class Sized(Variable):
    """A field after its size in bytes, which it must fill completely."""

    def __init__(self, length: c.Construct, subcon: c.Construct) -> None:
        super().__init__(subcon)
        self.length = length
        self.type_name = f"({length_name(length)} size)"
        self.size_text = "n"

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        size = read_length(self.length, stream, context, path, null=False) or 0
        return parse_within(self.subcon, size, stream, context, path)

    def _build(self, obj: Value, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        inner = io.BytesIO()
        self.subcon._build(obj, inner, context, path)
        raw = inner.getvalue()
        self.length._build(len(raw), stream, context, path)
        stream.write(raw)
        return obj


class Bounded(Variable):
    """A field of exactly the size that `size` computes from earlier fields."""

    def __init__(self, size: Callable[[c.Container], int], subcon: c.Construct) -> None:
        super().__init__(subcon)
        self.size = size
        self.size_text = "n"

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        size = self.size(context)
        if size < 0:
            raise c.IntegerError(f"size {size}", path=path)
        return parse_within(self.subcon, size, stream, context, path)

    def _build(self, obj: Value, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        start = stream.tell()
        self.subcon._build(obj, stream, context, path)
        written, size = stream.tell() - start, self.size(context)
        if written != size:
            raise c.IntegerError(f"{written} bytes, but the size field leaves {size}", path=path)
        return obj


def parse_within(
    subcon: c.Construct, size: int, stream: io.BytesIO, context: c.Container, path: str
) -> Value:
    """Parse a field that fills the next `size` bytes. After a failure the stream is at its position."""
    start = stream.tell()
    inner = Located(take(stream, size, path, "size"), first_byte(stream) + start)
    try:
        value = subcon._parsereport(inner, context, path)
        left = remaining_bytes(inner)
        if left:
            raise c.TerminatedError(f"{left} of {size} bytes are left over", path=path)
    except c.ConstructError:
        stream.seek(start + inner.tell())
        raise
    return value


class NullableStruct(Variable):
    """A byte, 1 before the fields, or `null_mark` without fields (0 in a tagged field, else -1)."""

    def __init__(self, subcon: c.Construct, null_mark: int = -1) -> None:
        super().__init__(subcon)
        self.null_mark = null_mark
        self.type_name = f"nullable struct (int8: 1, or {null_mark} for null)"
        self.size_text = "n"

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        mark = c.Int8sb._parsereport(stream, context, path)
        if mark not in (1, self.null_mark):
            raise c.IntegerError(f"null mark {mark}", path=path)
        return None if mark != 1 else self.subcon._parsereport(stream, context, path)

    def _build(self, obj: Value, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        c.Int8sb._build(self.null_mark if obj is None else 1, stream, context, path)
        if obj is not None:
            self.subcon._build(obj, stream, context, path)
        return obj


class TaggedFields(c.Construct):  # type: ignore[misc]
    """Optional fields of a flexible version (KIP-482): a count, then tag, size and value of each; tags
    ascend.

    The value is a list of containers `tag, name, value`. An unknown tag has the name None and its raw bytes.
    """

    def __init__(self, known: dict[int, c.Renamed]) -> None:
        super().__init__()
        self.known = known
        self.type_name = "tagged fields"
        self.size_text = "n"

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> c.ListContainer:
        count = UVarInt._parsereport(stream, context, path)
        left = remaining_bytes(stream)
        if count > left // 2:
            raise c.RangeError(f"{count} tagged fields, but only {left} bytes are left", path=path)
        fields = c.ListContainer()
        last = -1
        for _ in range(count):
            tag = UVarInt._parsereport(stream, context, path)
            if tag <= last:
                raise c.IntegerError(f"tag {tag} after tag {last}", path=path)
            last = tag
            size = UVarInt._parsereport(stream, context, path)
            field = self.known.get(tag, c.GreedyBytes)
            value = parse_within(field, size, stream, context, path)
            fields.append(c.Container(tag=tag, name=field.name, value=value))
        return fields

    def _build(self, obj: Value, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        UVarInt._build(len(obj), stream, context, path)
        for field in obj:
            UVarInt._build(field["tag"], stream, context, path)
            raw = self.known.get(field["tag"], c.GreedyBytes).build(field["value"])
            UVarInt._build(len(raw), stream, context, path)
            stream.write(raw)
        return obj


class Versioned(c.Construct):  # type: ignore[misc]
    """A version (int16) and the fields of that version, as one container that starts with `version`."""

    def __init__(self, title: str, versions: dict[int, c.Construct]) -> None:
        super().__init__()
        self.title = title
        self.version = "version" / c.Int16sb
        self.versions = versions
        self.type_name = "int16 version, then its fields"
        self.size_text = "n"

    def fields(self, version: int, path: str) -> c.Construct:
        """The fields of a version. Raises Construct's SwitchError for a version that is not defined."""
        found = self.versions.get(version)
        if found is None:
            known = ", ".join(map(str, self.versions))
            raise c.SwitchError(f"{self.title} version {version} is not defined (known: {known})", path=path)
        return found

    def whole(self, version: int) -> c.Struct:
        """A version that is defined, with its fields."""
        return c.Struct(self.version, *self.versions[version].subcons)

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> c.Container:
        version = int(self.version._parsereport(stream, context, path))
        parsed = self.fields(version, path)._parsereport(stream, context, path)
        return c.Container({"version": version, **parsed})

    def _build(self, obj: Value, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        version = obj["version"]
        c.Int16sb._build(version, stream, context, path)
        self.fields(version, path)._build(obj, stream, context, path)
        return obj


class Filled(Variable):
    """Items up to the end of the data, which is the end of an item."""

    def __init__(self, subcon: c.Construct) -> None:
        super().__init__(subcon)
        self.type_name = "repeated to the end"
        self.size_text = "n"

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> c.ListContainer:
        items = c.ListContainer()
        while remaining_bytes(stream):
            items.append(self.subcon._parsereport(stream, context, path))
        return items

    def _build(self, obj: Value, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        require_list(obj, path)
        for item in obj:
            self.subcon._build(item, stream, context, path)
        return obj


class UntilMark(Filled):
    """Items up to the end of the data, or to bytes that are no item: a mark, or as much of it as is left."""

    def __init__(self, mark: bytes, subcon: c.Construct) -> None:
        super().__init__(subcon)
        self.mark = mark
        self.type_name = "repeated to a mark"
        self.size_text = "n"

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> c.ListContainer:
        items = c.ListContainer()
        while True:
            found = stream.read(len(self.mark))
            stream.seek(-len(found), io.SEEK_CUR)
            if self.mark.startswith(found):
                return items
            items.append(self.subcon._parsereport(stream, context, path))


class AtEnd(Variable):
    """A field near the end that older writers did not write: None if fewer bytes are left than it needs."""

    def __init__(self, subcon: c.Construct, least_bytes: int) -> None:
        super().__init__(subcon)
        self.least_bytes = least_bytes
        self.type_name = "optional"
        self.size_text = "0 or n"

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        return self.subcon._parsereport(stream, context, path) if self.is_there(stream) else None

    def is_there(self, stream: io.BytesIO) -> bool:
        """Whether the field follows."""
        return remaining_bytes(stream) >= self.least_bytes

    def _build(self, obj: Value, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        if obj is not None:
            self.subcon._build(obj, stream, context, path)
        return obj
