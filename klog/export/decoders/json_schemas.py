"""Finds the type of JSON values: from samples, as Spark infers it, or from a JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from klog.formats.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_FIELDS: Final = 1000
"""An object with more fields has data as keys: it stays text."""
_DEEPEST: Final = 32
_LARGEST_INT64: Final = 2**63 - 1
_LARGEST_DECIMAL: Final = 10**38 - 1


def infer(samples: Iterable[bytes]) -> pa.DataType:
    """The type that fits all samples; samples that are no JSON are ignored.

    Whole numbers are BIGINT (or DECIMAL(38, 0)), others DOUBLE. A value whose type differs between samples,
    that is always null, or that has no fields is STRING: its JSON text. Fields are sorted by name, as in
    Spark. Raises UsageError if there are samples but none is JSON.
    """
    shape: _Shape = None
    read = passed_over = 0
    for sample in samples:
        try:
            value = json.loads(sample)
        except (ValueError, RecursionError):
            passed_over += 1
            continue
        read += 1
        shape = _merged(shape, _shape_of(value, 0))
    if passed_over and not read:
        raise UsageError("no record is JSON, so no schema can be inferred", cure="give the schema")
    return _type_of(shape)


# A shape is None (only nulls so far), a name of a scalar, ("list", shape) or {field: shape}.
_Shape = Any


def _shape_of(value: object, depth: int) -> _Shape:
    if depth > _DEEPEST:
        return "string"
    if isinstance(value, dict):
        return {name: _shape_of(one, depth + 1) for name, one in value.items()} or "string"
    if isinstance(value, list):
        element: _Shape = None
        for one in value:
            element = _merged(element, _shape_of(one, depth + 1))
        return ("list", element)
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        if abs(value) <= _LARGEST_INT64:
            return "int"
        return "decimal" if abs(value) <= _LARGEST_DECIMAL else "string"
    if isinstance(value, float):
        return "double"
    return None if value is None else "string"


_NUMBERS: Final = ("int", "decimal", "double")


def _merged(one: _Shape, other: _Shape) -> _Shape:
    if one is None or other is None or one == other:
        return other if one is None else one
    if isinstance(one, dict) and isinstance(other, dict):
        names = one.keys() | other.keys()
        return {name: _merged(one.get(name), other.get(name)) for name in names}
    if isinstance(one, tuple) and isinstance(other, tuple):
        return ("list", _merged(one[1], other[1]))
    if one in _NUMBERS and other in _NUMBERS:
        return max(one, other, key=_NUMBERS.index)
    return "string"


def _type_of(shape: _Shape) -> pa.DataType:
    import pyarrow as pa

    if isinstance(shape, dict):
        if len(shape) > _MOST_FIELDS:
            return pa.string()
        return pa.struct([pa.field(name, _type_of(shape[name])) for name in sorted(shape)])
    if isinstance(shape, tuple):
        return pa.list_(pa.field("element", _type_of(shape[1])))
    kinds = {"bool": pa.bool_(), "int": pa.int64(), "decimal": pa.decimal128(38, 0), "double": pa.float64()}
    return kinds.get(shape, pa.string())


def from_json_schema(text: str) -> pa.DataType:
    """The type of values that fit a JSON Schema: objects with properties, arrays, scalars, one-or-null.

    A value without one definite type (`anyOf` of several types, no type) is STRING: its JSON text. References
    within the schema are followed. Raises UsageError if it is no JSON Schema or refers to itself.
    """
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the JSON Schema is not JSON: {error}") from None
    return _from_schema(schema, schema, ())


def _from_schema(schema: object, root: object, above: tuple[str, ...]) -> pa.DataType:
    import pyarrow as pa

    if not isinstance(schema, Mapping):
        return pa.string()
    if "$ref" in schema:
        reference = str(schema["$ref"])
        if reference in above:
            raise UsageError(f"the JSON Schema refers to itself at {reference}", cure="give a schema as DDL")
        return _from_schema(_resolved(reference, root), root, (*above, reference))
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            some = [
                one for one in schema[choice] if not (isinstance(one, dict) and one.get("type") == "null")
            ]
            return _from_schema(some[0], root, above) if len(some) == 1 else pa.string()
    names = schema.get("type", "object" if "properties" in schema else None)
    given = [name for name in (names if isinstance(names, list) else [names]) if name != "null"]
    if len(given) != 1:
        return pa.string()
    return _of_named_type(given[0], schema, root, above)


def _of_named_type(
    name: object, schema: Mapping[str, Any], root: object, above: tuple[str, ...]
) -> pa.DataType:
    import pyarrow as pa

    if name == "object" and schema.get("properties"):
        properties = schema["properties"].items()
        return pa.struct([pa.field(key, _from_schema(one, root, above)) for key, one in properties])
    if name == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return pa.map_(pa.string(), _from_schema(schema["additionalProperties"], root, above))
    if name == "array":
        return pa.list_(pa.field("element", _from_schema(schema.get("items"), root, above)))
    if name == "string" and schema.get("format") == "date":
        return pa.date32()
    if name == "string" and schema.get("format") == "date-time":
        return pa.timestamp("us", "UTC")
    kinds = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
    return kinds.get(str(name), pa.string())


def _resolved(reference: str, root: object) -> object:
    found = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if not reference.startswith("#") or not isinstance(found, Mapping) or name not in found:
            raise UsageError(f"the JSON Schema refers to {reference}, which is not in it")
        found = found[name]
    return found
