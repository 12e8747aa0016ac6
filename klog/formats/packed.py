"""The fixed-size parts of Kafka's log files as `struct.Struct`s, for readers and writers that must be fast.

The definitions say what the fields mean: `klog formats` prints them. `fixed_fields` has their order and
types.
"""

from __future__ import annotations

import struct
from typing import Final

from klog.formats import fixed_fields

_BATCH: Final = fixed_fields.run("RecordBatch")

ENTRY_PREFIX: Final = _BATCH.through("batchLength")
BATCH_HEADER: Final = _BATCH.struct
BATCH_FIELDS: Final = _BATCH.names
write_batch_header: Final = _BATCH.writer()
BATCH_HEADER_TO_MAGIC: Final = _BATCH.through("magic")
BATCH_HEADER_TO_LAST_OFFSET_DELTA: Final = _BATCH.through("lastOffsetDelta")
BATCH_HEADER_TO_LEADER_EPOCH: Final = _BATCH.through("partitionLeaderEpoch")
"""What a leader sets when it appends a batch."""

MESSAGE_FIELDS: Final = fixed_fields.run("Message1").only("crc", "attributes", "timestamp")
"""Of a message of magic 1; in magic 0 there is no timestamp, but as many bytes."""

OFFSET_INDEX_ENTRY: Final = fixed_fields.run("OffsetIndexEntry").struct
TIME_INDEX_ENTRY: Final = fixed_fields.run("TimeIndexEntry").struct
TXN_INDEX_ENTRY: Final = fixed_fields.run("AbortedTxn").struct
SNAPSHOT_HEADER: Final = fixed_fields.run("ProducerSnapshot").struct
SNAPSHOT_ENTRY: Final = fixed_fields.run("ProducerSnapshot.producers").struct
CONTROL_KEY: Final = fixed_fields.run("ControlKey").struct
END_TXN_MARKER: Final = fixed_fields.run("EndTxnMarker").struct

INT8: Final = struct.Struct(">b")
INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")
UINT32: Final = struct.Struct(">I")
