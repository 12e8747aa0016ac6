"""The base class of the entities of this package, none of which is flexible.

Modules of entities do not use `from __future__ import annotations`, because kio reads the types from the
class. Fields that a version lacks are class variables, so that handlers can read them.
"""

from __future__ import annotations

from typing import ClassVar, Final

from klog.protocol.interbroker.struct import Struct

MILLISECONDS: Final = {"kafka_type": "timedelta_i32"}


class LegacyStruct(Struct):
    """Base of the entities. `klog.protocol.entity_fields` reads the fields."""

    __slots__ = ()
    __flexible__: ClassVar[bool] = False
