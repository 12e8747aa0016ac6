"""The base class of entities, and a function that declares their fields.

Modules of entities do not use `from __future__ import annotations`, because kio reads the types from the
class.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar, Final, TypeAlias

# The type of a field's default. It is Any, because dataclasses.field replaces a value of any type.
_FieldOf: TypeAlias = Any

TOPIC_ID: Final = {"kafka_type": "uuid"}


class Struct:
    """Base of the entities. `klog.protocol.entity_fields` reads the fields.

    Requests and responses have an API key and a version.
    """

    __slots__ = ()
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int]
    __version__: ClassVar[int]

    def __init_subclass__(cls, *, api_key: int | None = None, version: int | None = None) -> None:
        # A dataclass with slots is created twice, the second time without these arguments.
        if api_key is not None and version is not None:
            cls.__api_key__ = api_key
            cls.__version__ = version


def kafka(kafka_type: str, *, tag: int | None = None, **default: object) -> _FieldOf:
    """A dataclass field of a Kafka type, with a tag if `tag` is given.

    `default` is passed to dataclasses.field.
    """
    metadata: dict[str, object] = {"kafka_type": kafka_type}
    if tag is not None:
        metadata["tag"] = tag
    return field(metadata=metadata, **default)  # type: ignore[call-overload]
