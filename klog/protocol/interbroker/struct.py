"""What the entities of this package have in common: all are flexible, and a field says its Kafka type.

Their modules keep annotations as types (no `from __future__ import annotations`): kio reads them
from the class.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar, Final, TypeAlias

# What dataclasses.field stands for at the place of a default: of any type, for the checker's sake.
_FieldOf: TypeAlias = Any

TOPIC_ID: Final = {"kafka_type": "uuid"}


class Struct:
    """Base of the entities; see klog.protocol.entity_fields for how they are read."""

    __slots__ = ()
    __flexible__: ClassVar[bool] = True


def kafka(kafka_type: str, *, tag: int | None = None, **default: object) -> _FieldOf:
    """A dataclass field of a Kafka type; `default` as dataclasses.field takes it, `tag` for a tagged one."""
    metadata: dict[str, object] = {"kafka_type": kafka_type}
    if tag is not None:
        metadata["tag"] = tag
    return field(metadata=metadata, **default)  # type: ignore[call-overload]
