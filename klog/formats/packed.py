"""The fixed-size parts of Kafka's log files as `struct.Struct`s, for readers and writers that must be fast.

The Construct definitions (`record_batch`, `offset_index`, `time_index`, `transaction_index`,
`producer_snapshot`, `control_records`) say what the fields mean. Tests hold both equal.
"""

from __future__ import annotations

import struct
from typing import Final

# The first 12 bytes of each entry of a segment: offset, size of what follows.
ENTRY_PREFIX: Final = struct.Struct(">qi")

# Magic 2: base offset, batch length, partition leader epoch, magic, crc, attributes, last offset delta,
# base timestamp, max timestamp, producer id, producer epoch, base sequence, record count.
BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")

# The first fields of `BATCH_HEADER`: up to the magic, and up to the last offset delta.
BATCH_HEADER_TO_MAGIC: Final = struct.Struct(">qiib")
BATCH_HEADER_TO_LAST_OFFSET_DELTA: Final = struct.Struct(">qiibIhi")

# The fields that a leader sets when it appends a batch: base offset, batch length, partition leader epoch.
BATCH_HEADER_TO_LEADER_EPOCH: Final = struct.Struct(">qii")

# Relative offset, position.
OFFSET_INDEX_ENTRY: Final = struct.Struct(">ii")

# Timestamp in ms, relative offset.
TIME_INDEX_ENTRY: Final = struct.Struct(">qi")

# Version, producer id, first offset, last offset, last stable offset.
TXN_INDEX_ENTRY: Final = struct.Struct(">hqqqq")

# Version, crc, number of entries.
SNAPSHOT_HEADER: Final = struct.Struct(">hIi")

# Producer id, producer epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch,
# first offset of the current transaction.
SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")

# Key of a control record: version, type. Value of an end transaction marker: version, coordinator epoch.
CONTROL_KEY: Final = struct.Struct(">hh")
END_TXN_MARKER: Final = struct.Struct(">hi")

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")
UINT32: Final = struct.Struct(">I")
