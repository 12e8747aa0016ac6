"""Decodes JSON values of a given type with Arrow's parser, and only unusual values in Python.

All values of a column are parsed as one buffer. Each is put into an array, `{"v":[VALUE]}`, so that no value
can extend into the next: anything but exactly one JSON value gives an error, or an array with another number
of elements. If Arrow rejects the buffer, each half is tried, and in the end single values in Python. Python
accepts more: a number for a string becomes its text (as in Spark), and dates and maps are read.
"""

from __future__ import annotations

import datetime
import json
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from klog.export.decoders.decoder import Decoded, DecodeError, decode_each
from klog.export.decoders.text import decode_utf8

if TYPE_CHECKING:
    import pyarrow as pa

_SINGLY: Final = 1024
"""Up to this many values with a bad one among them are decoded in Python: starting the parser takes as long
as decoding dozens of values there."""


class _Number(float):
    """A number that keeps its text, from which decimals are made."""

    def __new__(cls, text: str) -> _Number:
        self = super().__new__(cls, text)
        self.text = text
        return self

    text: str


class JsonDecoder:
    """Decodes JSON values to `kind`: unknown fields are left out, and missing fields are null."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self._native = _is_native(kind)
        self._has_decimals = "decimal" in str(kind)

    def decode(self, values: pa.Array) -> Decoded:
        """Decode a binary array of JSON texts."""
        if not self._native:
            return decode_each(values, self.kind, self._one)
        return self._decode(values, 0)

    def _decode(self, values: pa.Array, first_row: int) -> Decoded:
        import pyarrow as pa

        rows = len(values)
        parsed = self._parsed(values)
        if parsed is not None:
            return Decoded(parsed, {})
        if rows <= _SINGLY:
            found = decode_each(values, self.kind, self._one)
            return Decoded(found.values, {first_row + row: why for row, why in found.errors.items()})
        half = rows // 2
        left = self._decode(values.slice(0, half), first_row)
        right = self._decode(values.slice(half), first_row + half)
        return Decoded(pa.concat_arrays([left.values, right.values]), left.errors | right.errors)

    def _parsed(self, values: pa.Array) -> pa.Array | None:
        """All values, parsed at once; None if any of them is bad."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.json as pj

        if not len(values):
            return pa.nulls(0, self.kind)
        try:
            texts = values.cast(pa.string())  # the parser does not check the encoding
            lines = pc.binary_join_element_wise('{"v":[', pc.fill_null(texts, "null"), "]}\n", "")
            data = lines.buffers()[2]
            table = pj.read_json(
                pa.BufferReader(data),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=pj.ParseOptions(
                    explicit_schema=pa.schema([("v", pa.list_(self.kind))]),
                    newlines_in_values=True,
                    unexpected_field_behavior="ignore",
                ),
            )
        except (pa.ArrowException, OverflowError):
            return None
        lists = table.column("v").combine_chunks()
        if self._has_decimals and not _is_valid(lists):
            return None
        if len(lists) != len(values) or len(lists.flatten()) != len(values):
            return None
        if pc.min_max(pc.list_value_length(lists))["min"].as_py() != 1:
            return None
        return lists.flatten()

    def _one(self, value: bytes) -> object:
        try:
            found = json.loads(decode_utf8(value), parse_float=_Number)
        except json.JSONDecodeError as error:
            raise DecodeError(f"not JSON: {error}") from None
        except (ValueError, RecursionError) as error:  # thousands of digits or brackets
            raise DecodeError(f"JSON that cannot be read: {error}") from None
        return coerced(found, self.kind, "value")


def _is_valid(values: pa.Array) -> bool:
    """Whether all values fit their type: the parser accepts decimals with a digit too many."""
    import pyarrow as pa

    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _is_native(kind: pa.DataType) -> bool:
    """Whether Arrow's parser reads the type as this module does."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        # The parser accepts any value for a struct without fields.
        return kind.num_fields > 0 and all(_is_native(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _is_native(kind.value_type)
    if pa.types.is_timestamp(kind):
        return kind.tz is not None
    checks = (
        pa.types.is_decimal,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_string,
        pa.types.is_boolean,
    )
    return any(check(kind) for check in checks)


def coerced(value: Any, kind: pa.DataType, place: str) -> Any:  # noqa: ANN401 (JSON is anything)
    """A parsed JSON value as a value for Arrow's `kind`. Raises DecodeError, which names the `place`."""
    import pyarrow as pa

    if value is None:
        return None
    types = pa.types
    if types.is_string(kind):
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if types.is_struct(kind):
        fields = _expect(value, dict, kind, place)
        return {
            field.name: coerced(fields.get(field.name), field.type, f"{place}.{field.name}") for field in kind
        }
    if types.is_list(kind):
        elements = _expect(value, list, kind, place)
        return [coerced(one, kind.value_type, f"{place}[{at}]") for at, one in enumerate(elements)]
    if types.is_map(kind):
        entries = _expect(value, dict, kind, place)
        return [(key, coerced(one, kind.item_type, f"{place}.{key}")) for key, one in entries.items()]
    if types.is_boolean(kind):
        return _expect(value, bool, kind, place)
    if isinstance(value, bool):
        raise _mismatch(value, kind, place)
    if types.is_integer(kind):
        return _expect(value, int, kind, place)
    if types.is_floating(kind):
        return float(_expect(value, int | float, kind, place))
    return _scalar(value, kind, place)


def _scalar(value: object, kind: pa.DataType, place: str) -> object:
    import pyarrow as pa

    try:
        if pa.types.is_decimal(kind):
            number = _expect(value, str | int | float, kind, place)
            exact = Decimal(number.text if isinstance(number, _Number) else str(number))
            return exact.quantize(Decimal(1).scaleb(-kind.scale))
        text = _expect(value, str, kind, place)
        if pa.types.is_date(kind):
            return datetime.date.fromisoformat(text)
        when = datetime.datetime.fromisoformat(text)
    except (ValueError, InvalidOperation) as error:
        raise DecodeError(f"{place} is not {kind}: {error}") from None
    if kind.tz is None:
        return when.replace(tzinfo=None)
    return when if when.tzinfo else when.replace(tzinfo=datetime.UTC)


def _expect(value: Any, wanted: Any, kind: pa.DataType, place: str) -> Any:  # noqa: ANN401 (as it is)
    if not isinstance(value, wanted):
        raise _mismatch(value, kind, place)
    return value


def _mismatch(value: object, kind: pa.DataType, place: str) -> DecodeError:
    return DecodeError(f"{place} is not {kind} but {json.dumps(value)[:80]}")
