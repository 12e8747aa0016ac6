"""Transaction markers: what the control batches of a log say (KIP-98)."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from klog.formats import kernel
from klog.formats.columns import BatchTable, RecordTable

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_ABORT: Final = 0
_COMMIT: Final = 1


class Marker(NamedTuple):
    """What ends a transaction: a control batch's record."""

    aborted: bool
    coordinator_epoch: int
    timestamp: int


def end_marker(data: memoryview | bytearray) -> Marker | None:
    """The marker in a buffer that starts with a control batch; None where it holds none."""
    table, records = BatchTable(), RecordTable()
    kernel.scan(data, 0, True, table)
    kernel.decode(data, table, 0, 1, records)
    if not len(records) or records.key_size[0] < _KEY.size:
        return None
    version, kind = _KEY.unpack_from(data, records.key_start[0])
    if version < 0 or kind not in (_ABORT, _COMMIT) or records.value_size[0] < _VALUE.size:
        return None
    value_version, coordinator_epoch = _VALUE.unpack_from(data, records.value_start[0])
    if value_version < 0:
        return None
    return Marker(kind == _ABORT, coordinator_epoch, records.timestamp[0])
