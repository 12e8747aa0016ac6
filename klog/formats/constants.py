"""Numbers that the readers, writers and definitions of Kafka's log files share.

Places and sizes come from the definitions by `fixed_fields`, which does not import them: a fast reader can
use the numbers without loading Construct. `klog formats record-batch` shows what they mean.
"""

from __future__ import annotations

from typing import Final

from klog.formats import fixed_fields

_BATCH: Final = fixed_fields.run("RecordBatch")
_MESSAGE: Final = fixed_fields.run("Message1")

# Every entry of a segment starts with its offset and the size of what follows. The magic is at the same
# position in all formats.
ENTRY_SIZE_POSITION: Final = _BATCH.at("batchLength")
ENTRY_PREFIX_BYTES: Final = _BATCH.after("batchLength")
MAGIC_POSITION: Final = _BATCH.at("magic")
BATCH_BASE_OFFSET_POSITION: Final = _BATCH.at("baseOffset")

# Magic 2: positions in the batch header. The crc covers everything from the attributes on.
MAGIC_V2: Final = 2
BATCH_LEADER_EPOCH_POSITION: Final = _BATCH.at("partitionLeaderEpoch")
BATCH_CRC_POSITION: Final = _BATCH.at("crc")
BATCH_ATTRIBUTES_POSITION: Final = _BATCH.at("attributes")
BATCH_CRC_FROM: Final = BATCH_ATTRIBUTES_POSITION
BATCH_LAST_OFFSET_DELTA_POSITION: Final = _BATCH.at("lastOffsetDelta")
BATCH_BASE_TIMESTAMP_POSITION: Final = _BATCH.at("baseTimestamp")
BATCH_MAX_TIMESTAMP_POSITION: Final = _BATCH.at("maxTimestamp")
BATCH_PRODUCER_ID_POSITION: Final = _BATCH.at("producerId")
BATCH_PRODUCER_EPOCH_POSITION: Final = _BATCH.at("producerEpoch")
BATCH_BASE_SEQUENCE_POSITION: Final = _BATCH.at("baseSequence")
BATCH_COUNT_POSITION: Final = _BATCH.at("recordCount")
BATCH_HEADER_BYTES: Final = _BATCH.size_bytes
BATCH_LENGTH_OF_HEADER: Final = BATCH_HEADER_BYTES - ENTRY_PREFIX_BYTES

# Magic 0 and 1: the header ends before the key length. The crc covers everything from the magic on.
MESSAGE_CRC_POSITION: Final = _MESSAGE.at("crc")
MESSAGE_CRC_FROM: Final = _MESSAGE.after("crc")
MESSAGE_ATTRIBUTES_POSITION: Final = _MESSAGE.at("attributes")
MESSAGE_TIMESTAMP_POSITION: Final = _MESSAGE.at("timestamp")
MESSAGE_LENGTH_BYTES: Final = fixed_fields.run("Message0", "value").size_bytes  # before a key or a value
MESSAGE_V0_HEADER_BYTES: Final = fixed_fields.run("Message0").at("key")
MESSAGE_V1_HEADER_BYTES: Final = _MESSAGE.at("key")
MIN_ENTRY_BYTES: Final = fixed_fields.size_bytes("Message0")
MIN_MESSAGE_SIZE: Final = MIN_ENTRY_BYTES - ENTRY_PREFIX_BYTES
"""Smallest legal size field: a magic 0 message with null key and null value."""

# Attributes of a batch. A message of magic 0 or 1 has only the codec and the timestamp type.
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_MASK: Final = fixed_fields.mask("RecordBatch", "codec")
TIMESTAMP_TYPE_BIT: Final = fixed_fields.mask("RecordBatch", "timestampType")
TRANSACTIONAL_BIT: Final = fixed_fields.mask("RecordBatch", "isTransactional")
CONTROL_BIT: Final = fixed_fields.mask("RecordBatch", "isControl")
DELETE_HORIZON_BIT: Final = fixed_fields.mask("RecordBatch", "hasDeleteHorizon")

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1

OFFSET_INDEX_ENTRY_BYTES: Final = fixed_fields.size_bytes("OffsetIndexEntry")
TIME_INDEX_ENTRY_BYTES: Final = fixed_fields.size_bytes("TimeIndexEntry")
TXN_INDEX_ENTRY_BYTES: Final = fixed_fields.size_bytes("AbortedTxn")
TXN_INDEX_VERSION: Final = 0

SNAPSHOT_HEADER_BYTES: Final = fixed_fields.size_bytes("ProducerSnapshot")
SNAPSHOT_ENTRY_BYTES: Final = fixed_fields.size_bytes("ProducerSnapshot.producers")
SNAPSHOT_CRC_POSITION: Final = fixed_fields.run("ProducerSnapshot").at("crc")
SNAPSHOT_COUNT_POSITION: Final = fixed_fields.run("ProducerSnapshot").at("producers")
SNAPSHOT_CRC_FROM: Final = fixed_fields.run("ProducerSnapshot").after("crc")
SNAPSHOT_VERSION: Final = 1

CHECKPOINT_VERSION: Final = 0

# Commits in `__consumer_offsets`.
COMMIT_KEY_VERSION: Final = 1
COMMIT_VALUE_VERSION: Final = 3

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
