"""Numbers that the readers, writers and definitions of Kafka's log files share.

The module imports nothing, so a fast reader can use the numbers without loading the Construct definitions.
`klog formats record-batch` shows what they mean; tests hold them equal to the definitions.
"""

from __future__ import annotations

from typing import Final

# Every entry of a segment starts with its offset (8 bytes) and its size (4 bytes). The magic is at the same
# position in all formats.
ENTRY_PREFIX_BYTES: Final = 12
MAGIC_POSITION: Final = 16

# Magic 2: positions in the batch header. The crc covers everything from the attributes on.
MAGIC_V2: Final = 2
BATCH_CRC_POSITION: Final = 17
BATCH_ATTRIBUTES_POSITION: Final = 21
BATCH_CRC_FROM: Final = BATCH_ATTRIBUTES_POSITION
BATCH_LAST_OFFSET_DELTA_POSITION: Final = 23
BATCH_MAX_TIMESTAMP_POSITION: Final = 35
BATCH_HEADER_BYTES: Final = 61
BATCH_LENGTH_OF_HEADER: Final = BATCH_HEADER_BYTES - ENTRY_PREFIX_BYTES

# Magic 0 and 1: the header ends before the key length. The crc covers everything from the magic on.
MESSAGE_CRC_FROM: Final = MAGIC_POSITION
MESSAGE_TIMESTAMP_POSITION: Final = 18
MESSAGE_V0_HEADER_BYTES: Final = 18
MESSAGE_V1_HEADER_BYTES: Final = 26
MIN_MESSAGE_SIZE: Final = 14
"""Smallest legal size field: a magic 0 message with null key and null value."""
MIN_ENTRY_BYTES: Final = ENTRY_PREFIX_BYTES + MIN_MESSAGE_SIZE

# Attributes of a batch. A message of magic 0 or 1 has only the codec and the timestamp type.
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1

OFFSET_INDEX_ENTRY_BYTES: Final = 8
TIME_INDEX_ENTRY_BYTES: Final = 12
TXN_INDEX_ENTRY_BYTES: Final = 34
TXN_INDEX_VERSION: Final = 0

SNAPSHOT_HEADER_BYTES: Final = 10
SNAPSHOT_ENTRY_BYTES: Final = 46
SNAPSHOT_CRC_FROM: Final = 6
SNAPSHOT_VERSION: Final = 1

CHECKPOINT_VERSION: Final = 0

INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

# Types of control records (KIP-98 for 0 and 1, KIP-595, KIP-630 and KIP-853 for the others).
CONTROL_TYPES: Final = (
    "ABORT",
    "COMMIT",
    "LEADER_CHANGE",
    "SNAPSHOT_HEADER",
    "SNAPSHOT_FOOTER",
    "KRAFT_VERSION",
    "KRAFT_VOTERS",
)
CONTROL_ABORT: Final = 0
CONTROL_COMMIT: Final = 1

NO_LEADER: Final = -1
"""The broker id in place of a leader, if a partition has none."""
