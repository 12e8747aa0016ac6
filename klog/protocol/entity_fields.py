"""Reads from an entity class how its fields are written on the wire.

An entity is a frozen dataclass like those of kio (`kio.schema.*`, generated from Kafka 4's schemas). Class
variables hold the version and whether it is flexible. The metadata of a field hold its Kafka type and tag,
and its annotation the rest (`tuple[X, ...]` is an array, `| None` nullable, a dataclass a struct). klog's own
entities (`klog.protocol.interbroker`) have the same form.

klog uses the classes of kio, but reads and writes them itself. The reader of kio 0.6 ends the process if the
length of an array exceeds the memory, and rejects unknown tagged fields, which KIP-482 requires to be
skipped.
"""

from __future__ import annotations

import dataclasses
import datetime
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, TypeAlias, Union, get_args, get_origin, get_type_hints

# An entity, or the value of one of its fields. Only its class tells its type.
Entity: TypeAlias = Any
Value: TypeAlias = Any
_Hint: TypeAlias = Any

_ZEROS: Final[dict[str, Any]] = {
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": None,
    "bool": False,
    "float64": 0.0,
    "timedelta_i32": datetime.timedelta(),
    "timedelta_i64": datetime.timedelta(),
}


class EntityField(NamedTuple):
    """One field. A struct, or an array of structs, has `kafka_type` None and its class in `struct`."""

    name: str
    kafka_type: str | None
    struct: type | None
    array: bool
    nullable: bool
    tag: int | None
    default: Value


def is_flexible(entity_type: type) -> bool:
    """Whether the class uses compact types and tagged fields."""
    return bool(entity_type.__flexible__)  # type: ignore[attr-defined]


def entity_fields(entity_type: type) -> tuple[EntityField, ...]:
    """The fields of an entity class in the order of their declaration."""
    hints = get_type_hints(entity_type)
    return tuple(_field(field, hints[field.name]) for field in dataclasses.fields(entity_type))


def _without_none(hint: _Hint) -> tuple[_Hint, bool]:
    origin: object = get_origin(hint)
    if origin is not UnionType and origin is not Union:
        return hint, False
    inner = [part for part in get_args(hint) if part is not NoneType]
    return inner[0], True


def _field(field: dataclasses.Field[Any], hint: _Hint) -> EntityField:
    bare, nullable = _without_none(hint)
    outer: object = get_origin(bare)
    array = outer is tuple
    if array:
        # kio annotates an array whose items may be the zero id as `tuple[UUID | None, ...]`.
        bare, _ = _without_none(get_args(bare)[0])
    struct: type | None = bare if isinstance(bare, type) and dataclasses.is_dataclass(bare) else None
    kafka_type = None if struct else str(field.metadata["kafka_type"])
    zero = None if nullable else () if array else _zero(struct, kafka_type)
    default = zero if field.default is dataclasses.MISSING else field.default
    return EntityField(field.name, kafka_type, struct, array, nullable, field.metadata.get("tag"), default)


def _zero(struct: type | None, kafka_type: str | None) -> Value:
    """The value of a field that is not set."""
    if struct is not None:
        return struct(**{part.name: part.default for part in entity_fields(struct)})
    return _ZEROS.get(str(kafka_type), 0)
