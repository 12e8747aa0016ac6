"""ZooKeeper's multiRead, which kazoo does not have: many reads in one request (ZOOKEEPER-1407, since 3.6).

It is imported when it is used, as kazoo.
"""

from __future__ import annotations

from collections.abc import Sequence

from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol.serialization import (
    GetData,
    MultiHeader,
    int_struct,
    multiheader_struct,
    read_buffer,
    stat_struct,
)
from kazoo.protocol.states import ZnodeStat

_ERROR = -1


class MultiRead:
    """A request for the data of many nodes. The answer has data and stat of each, or the error."""

    type = 22

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def serialize(self) -> bytes:
        """The body of the request."""
        header = bytes(MultiHeader(GetData.type, False, -1).serialize())
        reads = b"".join(header + bytes(GetData(path, None).serialize()) for path in self._paths)
        return reads + bytes(multiheader_struct.pack(-1, True, -1))

    @staticmethod
    def deserialize(body: bytes, offset: int) -> list[tuple[bytes | None, ZnodeStat] | Exception]:
        """The answers, in the order of the paths."""
        found: list[tuple[bytes | None, ZnodeStat] | Exception] = []
        while True:
            kind, is_done, _ = multiheader_struct.unpack_from(body, offset)
            offset += multiheader_struct.size
            if is_done:
                return found
            if kind == _ERROR:
                found.append(EXCEPTIONS[int_struct.unpack_from(body, offset)[0]]())
                offset += int_struct.size
            else:
                data, offset = read_buffer(body, offset)
                found.append((data, ZnodeStat._make(stat_struct.unpack_from(body, offset))))
                offset += stat_struct.size
