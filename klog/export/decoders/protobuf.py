"""Decodes protobuf values of one message type, with descriptors compiled by `protoc --include_imports -o`.

Types are those of Spark's `from_protobuf`, except unsigned numbers, which keep their value (uint32 is BIGINT,
uint64 DECIMAL(20, 0)). A scalar without presence (proto3) that was not set has its default; other fields that
were not set are null. A field whose type is a message without fields is left out. It needs protobuf
(`klog[protobuf]`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from klog.export.decoders.decoder import Decoded, DecodeError, decode_each, is_empty
from klog.formats.errors import UsageError
from klog.formats.optional import install_command

if TYPE_CHECKING:
    import pyarrow as pa

Read = Callable[[Any], Any]
"""Converts a value of the protobuf library to one for Arrow."""

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_NANOS: Final = 1_000


class ProtobufDecoder:
    """Decodes messages `name` of `descriptors` (a compiled file set in base64). Raises UsageError.

    An empty `name` means the first message of the last file: that is the file that was compiled.
    """

    def __init__(self, descriptors: str, name: str = "") -> None:
        self._types = MessageTypes(descriptors)
        self._message = self._types.named(name)
        self.message_name: str = self._message.full_name
        self.kind, self._read = _ArrowTypes().of_message(self._message)
        if is_empty(self.kind):
            raise UsageError(
                f"protobuf message {self.message_name} has no fields and cannot be a column of a table"
            )

    def decode(self, values: pa.Array) -> Decoded:
        """Decode a binary array of bare messages."""
        return decode_each(values, self.kind, self.decode_one)

    def decode_one(self, value: bytes) -> object:
        """One message. Raises DecodeError."""
        return self._read(parsed_message(self._types.message_class(self._message), value))


def parsed_message(kind: Any, value: bytes) -> Any:  # noqa: ANN401 (classes made at run time)
    """The message in these bytes. Raises DecodeError."""
    from google.protobuf.message import DecodeError as ProtobufError

    try:
        return kind.FromString(value)
    except ProtobufError as error:
        raise DecodeError(f"not a message of this type: {error}") from None


class MessageTypes:
    """The message types of a compiled file set (base64). Raises UsageError if it is none."""

    def __init__(self, descriptors: str) -> None:
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool
            from google.protobuf.message import DecodeError as ProtobufError
        except ImportError:
            raise UsageError("protobuf needs its library", cure=install_command("protobuf")) from None
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(descriptors, validate=True))
            self._pool = descriptor_pool.DescriptorPool()
            for file in files.file:
                self._pool.Add(file)
            self._files = [self._pool.FindFileByName(file.name) for file in files.file]
        except (ProtobufError, binascii.Error, TypeError, KeyError) as error:
            raise UsageError(
                f"the protobuf descriptors cannot be read: {error}",
                cure="compile them with `protoc --include_imports -o FILE`",
            ) from None
        if not self._files or not self._files[-1].message_types_by_name:
            raise UsageError("the protobuf descriptors hold no message")

    def named(self, name: str) -> Any:  # noqa: ANN401 (a descriptor)
        """The type with this full name, or for an empty name the first of the last file. Raises
        UsageError."""
        if not name:
            return self.at_path([0])
        try:
            return self._pool.FindMessageTypeByName(name)
        except KeyError:
            known = ", ".join(
                kind.full_name for file in self._files for kind in file.message_types_by_name.values()
            )
            raise UsageError(f"no protobuf message {name!r}", cure=f"there are {known}") from None

    def at_path(self, path: list[int]) -> Any:  # noqa: ANN401 (a descriptor)
        """The type at a path of indexes: in the last file, then in each enclosing message. Raises
        IndexError."""
        found = list(self._files[-1].message_types_by_name.values())[path[0]]
        for number in path[1:]:
            found = found.nested_types[number]
        return found

    def message_class(self, descriptor: Any) -> Any:  # noqa: ANN401 (a class made at run time)
        """The class that parses messages of this type."""
        from google.protobuf import message_factory

        return message_factory.GetMessageClass(descriptor)


class _ArrowTypes:
    """Arrow types of message types, with functions that read their fields."""

    def __init__(self) -> None:
        self._above: list[str] = []

    def of_message(self, message: Any) -> tuple[pa.DataType, Read]:  # noqa: ANN401 (a descriptor)
        import pyarrow as pa

        if message.full_name == _TIMESTAMP:
            return pa.timestamp("us", "UTC"), _read_timestamp
        if message.full_name in self._above:
            raise UsageError(
                f"protobuf message {message.full_name} contains itself and cannot be a column of a table"
            )
        self._above.append(message.full_name)
        found = [(field, *self._of_field(field)) for field in message.fields]
        self._above.pop()
        shapes = [shape for shape in found if not is_empty(shape[1])]
        kind = pa.struct([pa.field(field.name, kind) for field, kind, _ in shapes])
        reads = [(field.name, field.has_presence, read) for field, _, read in shapes]

        def read(value: Any) -> dict[str, Any]:  # noqa: ANN401 (a message)
            return {
                name: None if presence and not value.HasField(name) else read(getattr(value, name))
                for name, presence, read in reads
            }

        return kind, read

    def _of_field(self, field: Any) -> tuple[pa.DataType, Read]:  # noqa: ANN401 (a descriptor)
        import pyarrow as pa

        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            key, read_key = self._of_single(entry.fields_by_name["key"])
            item, read_item = self._of_single(entry.fields_by_name["value"])
            return pa.map_(key, item), lambda found: [(read_key(k), read_item(found[k])) for k in found]
        kind, read = self._of_single(field)
        if field.is_repeated:
            return pa.list_(pa.field("element", kind)), lambda found: [read(one) for one in found]
        return kind, read

    def _of_single(self, field: Any) -> tuple[pa.DataType, Read]:  # noqa: ANN401 (a descriptor)
        import pyarrow as pa

        if field.message_type is not None:
            return self.of_message(field.message_type)
        if field.enum_type is not None:
            names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
            return pa.string(), lambda number: names.get(number, str(number))
        kinds: dict[int, tuple[pa.DataType, Read]] = {
            field.CPPTYPE_INT32: (pa.int32(), _as_it_is),
            field.CPPTYPE_INT64: (pa.int64(), _as_it_is),
            field.CPPTYPE_UINT32: (pa.int64(), _as_it_is),
            field.CPPTYPE_UINT64: (pa.decimal128(20, 0), Decimal),
            field.CPPTYPE_DOUBLE: (pa.float64(), _as_it_is),
            field.CPPTYPE_FLOAT: (pa.float32(), _as_it_is),
            field.CPPTYPE_BOOL: (pa.bool_(), _as_it_is),
        }
        if field.type == field.TYPE_BYTES:
            return pa.binary(), _as_it_is
        return kinds.get(field.cpp_type, (pa.string(), _as_it_is))


def _as_it_is(value: Any) -> Any:  # noqa: ANN401 (of any type)
    return value


def _read_timestamp(value: Any) -> int:  # noqa: ANN401 (a message)
    return int(value.seconds * 1_000_000 + value.nanos // _NANOS)
