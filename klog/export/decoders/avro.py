"""Decodes Avro values to one schema; they may be written with another schema that resolves to it.

Types are those of Spark's `from_avro` (spark-avro, "Supported types for Avro -> Spark SQL conversion"): an
enum is a string, `[null, T]` is T, `[int, long]` a long, and any other union a struct of `member0`,
`member1`, ... A field whose type is a record without fields is left out. It needs fastavro (`klog[avro]`).
"""

from __future__ import annotations

import decimal
import io
import json
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from klog.export.decoders.decoder import Decoded, DecodeError, decode_each, is_empty
from klog.formats.errors import UsageError
from klog.formats.optional import install_command

if TYPE_CHECKING:
    import pyarrow as pa

Schema = Any
"""An Avro schema parsed by fastavro: a name, a list (union) or a mapping."""

Convert = Callable[[Any], Any]

_NUMBERS: Final = ("int", "long", "float", "double")


class AvroDecoder:
    """Decodes Avro values to `reader_schema` (JSON text).

    Raises UsageError if it is no schema, or no table can have it. The writer's schema is the same, unless
    `decode_written` gets another.
    """

    def __init__(self, reader_schema: str) -> None:
        self._reader = parsed(reader_schema)
        self.kind, self._convert = _ArrowTypes().of(_expanded(self._reader))
        if is_empty(self.kind):
            raise UsageError(
                "the Avro schema is a record without fields, which cannot be a column of a table"
            )

    def decode(self, values: pa.Array) -> Decoded:
        """Decode a binary array of bare Avro data."""
        return decode_each(values, self.kind, lambda value: self.decode_written(value, self._reader))

    def decode_written(self, value: bytes, writer: Schema) -> object:
        """One value, written with the schema `writer`. Raises DecodeError."""
        import fastavro
        from fastavro.read import SchemaResolutionError

        file = io.BytesIO(value)
        try:
            found = fastavro.schemaless_reader(file, writer, None if writer is self._reader else self._reader)
        except SchemaResolutionError as error:
            raise DecodeError(f"the schema it was written with does not resolve: {error}") from None
        except (
            *(EOFError, LookupError, ValueError, TypeError),
            *(ArithmeticError, decimal.InvalidOperation, struct.error, RecursionError),
        ) as error:
            raise DecodeError(f"not Avro of this schema: {type(error).__name__} {error}".rstrip()) from None
        if file.tell() != len(value):
            raise DecodeError(f"not Avro of this schema: {len(value) - file.tell()} bytes are left over")
        return found if self._convert is None or found is None else self._convert(found)


def parsed(text: str) -> Schema:
    """The schema in a JSON text. Raises UsageError."""
    try:
        import fastavro
        from fastavro.schema import SchemaParseException, UnknownType
    except ImportError:
        raise UsageError("Avro needs fastavro", cure=install_command("avro")) from None
    try:
        schema = json.loads(text)
        return fastavro.parse_schema(schema)
    except ValueError as error:
        raise UsageError(f"the Avro schema is not JSON: {error}") from None
    except (SchemaParseException, UnknownType, KeyError, TypeError) as error:
        raise UsageError(f"the Avro schema is invalid: {error}") from None


def _expanded(schema: Schema) -> Schema:
    """The schema with the definition of each named type wherever it is used, except types that contain
    themselves."""
    import fastavro.schema

    return fastavro.schema.expand_schema(schema)


class _ArrowTypes:
    """Arrow types of expanded schemas, with functions that convert fastavro's values (None: no
    conversion)."""

    def __init__(self) -> None:
        self._above: list[str] = []

    def of(self, schema: Schema) -> tuple[pa.DataType, Convert | None]:
        import pyarrow as pa

        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            if schema in self._above:
                raise UsageError(
                    f"the Avro schema contains itself in {schema} and cannot be a column of a table"
                )
            return _plain(schema), None
        name = schema["type"]
        if "logicalType" in schema and (logical := _logical(schema)) is not None:
            return logical
        if name in ("record", "error"):
            return self._record(schema)
        if name == "array":
            kind, convert = self.of(schema["items"])
            return pa.list_(pa.field("element", kind)), convert and _of_list(convert)
        if name == "map":
            kind, convert = self.of(schema["values"])
            return pa.map_(pa.string(), kind), _of_map(convert)
        if name == "enum":
            return pa.string(), None
        return (pa.binary(), None) if name == "fixed" else self.of(name)

    def _record(self, schema: Mapping[str, Any]) -> tuple[pa.DataType, Convert | None]:
        import pyarrow as pa

        self._above.append(schema["name"])
        found = {field["name"]: self.of(field["type"]) for field in schema.get("fields", ())}
        self._above.pop()
        shapes = {name: shape for name, shape in found.items() if not is_empty(shape[0])}
        converts = [(name, convert) for name, (_, convert) in shapes.items() if convert is not None]
        kind = pa.struct([pa.field(name, kind) for name, (kind, _) in shapes.items()])
        return kind, _of_record(converts) if converts else None

    def _union(self, schema: list[Schema]) -> tuple[pa.DataType, Convert | None]:
        import pyarrow as pa

        branches = [branch for branch in schema if branch != "null"]
        if len(branches) == 1:
            return self.of(branches[0])
        if branches and all(branch in _NUMBERS for branch in branches):
            whole = set(branches) <= {"int", "long"}
            return (pa.int64(), None) if whole else (pa.float64(), float)
        shapes = [self.of(branch) for branch in branches]
        fields = [pa.field(f"member{number}", kind) for number, (kind, _) in enumerate(shapes)]
        return pa.struct(fields), _of_union(branches, [convert for _, convert in shapes])


def _plain(name: str) -> pa.DataType:
    import pyarrow as pa

    kinds = {
        "null": pa.null(),
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "bytes": pa.binary(),
        "string": pa.string(),
    }
    if name not in kinds:
        raise UsageError(f"the Avro schema names an unknown type {name!r}")
    return kinds[name]


def _logical(schema: Mapping[str, Any]) -> tuple[pa.DataType, Convert | None] | None:
    import pyarrow as pa

    name = schema["logicalType"]
    if name == "decimal" and schema["precision"] <= 76:
        precision, scale = schema["precision"], schema.get("scale", 0)
        return (pa.decimal128 if precision <= 38 else pa.decimal256)(precision, scale), None
    kinds = {
        ("int", "date"): pa.date32(),
        ("int", "time-millis"): pa.time32("ms"),
        ("long", "time-micros"): pa.time64("us"),
        ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
        ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
        ("long", "local-timestamp-millis"): pa.timestamp("us"),
        ("long", "local-timestamp-micros"): pa.timestamp("us"),
    }
    if (schema["type"], name) in kinds:
        return kinds[schema["type"], name], None
    return (pa.string(), str) if name == "uuid" else None


def _of_list(convert: Convert) -> Convert:
    return lambda values: [None if one is None else convert(one) for one in values]


def _of_map(convert: Convert | None) -> Convert:
    if convert is None:
        return lambda entries: list(entries.items())
    return lambda entries: [(key, None if one is None else convert(one)) for key, one in entries.items()]


def _of_record(converts: list[tuple[str, Convert]]) -> Convert:
    def converted(record: dict[str, Any]) -> dict[str, Any]:
        for name, convert in converts:
            value = record[name]
            if value is not None:
                record[name] = convert(value)
        return record

    return converted


def _of_union(branches: list[Schema], converts: list[Convert | None]) -> Convert:
    from fastavro.validation import validate

    def converted(value: Any) -> dict[str, Any]:  # noqa: ANN401 (of any branch)
        for number, (branch, convert) in enumerate(zip(branches, converts, strict=True)):
            if validate(value, branch, raise_errors=False):
                return {f"member{number}": convert(value) if convert else value}
        raise DecodeError(f"value of a union has none of the types of its {len(branches)} branches")

    return converted
