# The numbers of `constants` that compiled modules need at compile time. Made by
# `python -m klog.formats.derive`: do not edit. The import fails unless both are equal.

from klog.formats import constants as _python

cpdef enum:
    ENTRY_SIZE_POSITION = 8
    ENTRY_PREFIX_BYTES = 12
    MAGIC_POSITION = 16
    BATCH_BASE_OFFSET_POSITION = 0
    MAGIC_V2 = 2
    BATCH_LEADER_EPOCH_POSITION = 12
    BATCH_CRC_POSITION = 17
    BATCH_ATTRIBUTES_POSITION = 21
    BATCH_CRC_FROM = 21
    BATCH_LAST_OFFSET_DELTA_POSITION = 23
    BATCH_BASE_TIMESTAMP_POSITION = 27
    BATCH_MAX_TIMESTAMP_POSITION = 35
    BATCH_PRODUCER_ID_POSITION = 43
    BATCH_PRODUCER_EPOCH_POSITION = 51
    BATCH_BASE_SEQUENCE_POSITION = 53
    BATCH_COUNT_POSITION = 57
    BATCH_HEADER_BYTES = 61
    BATCH_LENGTH_OF_HEADER = 49
    MESSAGE_CRC_POSITION = 12
    MESSAGE_CRC_FROM = 16
    MESSAGE_ATTRIBUTES_POSITION = 17
    MESSAGE_TIMESTAMP_POSITION = 18
    MESSAGE_LENGTH_BYTES = 4
    MESSAGE_V0_HEADER_BYTES = 18
    MESSAGE_V1_HEADER_BYTES = 26
    MIN_ENTRY_BYTES = 26
    MIN_MESSAGE_SIZE = 14
    CODEC_MASK = 7
    TIMESTAMP_TYPE_BIT = 8
    TRANSACTIONAL_BIT = 16
    CONTROL_BIT = 32
    DELETE_HORIZON_BIT = 64
    COMMIT_KEY_VERSION = 1
    COMMIT_VALUE_VERSION = 3
    INT32_MAX = 2147483647
    CONTROL_ABORT = 0
    CONTROL_COMMIT = 1

for _name, _number in vars(_python).items():
    if _name.isupper() and globals().get(_name, _number) != _number:
        raise AssertionError(f"{_name}: build the compiled modules again")
