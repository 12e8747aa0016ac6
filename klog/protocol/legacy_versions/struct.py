"""What the entities of this package have in common: none is flexible.

Their modules keep annotations as types (no `from __future__ import annotations`): kio reads them
from the class. What a version lacks is a class variable, so that a handler finds it all the same.
"""

from __future__ import annotations

from typing import ClassVar, Final

from klog.protocol.interbroker.struct import Struct

MILLISECONDS: Final = {"kafka_type": "timedelta_i32"}


class LegacyStruct(Struct):
    """Base of the entities; see klog.protocol.entity_fields for how they are read."""

    __slots__ = ()
    __flexible__: ClassVar[bool] = False
