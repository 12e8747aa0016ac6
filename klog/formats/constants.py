"""Numbers that readers, writers and definitions of the log share; nothing here imports anything heavy.

The definitions in this room say what the numbers mean (`klog formats record-batch`); a fast reader that
may not pay for the definitions takes them from here, and a test holds the two equal.
"""

from __future__ import annotations

from typing import Final

# Every entry of a segment, of whatever magic, starts with offset (8) and size (4), and has its magic here.
ENTRY_PREFIX_BYTES: Final = 12
MAGIC_POSITION: Final = 16

# Magic 2: header up to the first record; what its crc covers starts at the attributes.
BATCH_HEADER_BYTES: Final = 61
BATCH_CRC_POSITION: Final = 17
BATCH_CRC_FROM: Final = 21
BATCH_LENGTH_OF_HEADER: Final = BATCH_HEADER_BYTES - ENTRY_PREFIX_BYTES

# Magic 0 and 1: header up to the key length; what the crc covers starts at the magic.
MESSAGE_V0_HEADER_BYTES: Final = 18
MESSAGE_V1_HEADER_BYTES: Final = 26
MESSAGE_CRC_FROM: Final = 16
MIN_MESSAGE_SIZE: Final = 14
"""Smallest legal size field: a magic 0 message with null key and null value."""

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
