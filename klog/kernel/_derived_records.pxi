# Records as structs of C, with functions that read them, measure and write them. Made by
# `python -m klog.formats.derive`: do not edit.
#
# A `read_` function gives the position after the fields; NULL if they do not end before `stop`, or if
# something is null that may not be. A `write_` function writes as many bytes as `size_of_` says. Of an array
# there is only the number of items, which are its last bytes.
#
# `_numbers.pxi` and `_varint.pxi` must be included before.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef struct Data:  # null if `size` is negative
    const uint8_t *start
    int32_t size


cdef inline int64_t bytes_of(const Data *data) noexcept nogil:
    return data.size if data.size > 0 else 0


cdef inline uint8_t *put_data(uint8_t *p, Data *data) noexcept nogil:
    """Without a start, the caller writes the bytes to where they start then."""
    if data.start == NULL:
        data.start = p
    elif data.size > 0:
        memcpy(p, data.start, data.size)
    return p + bytes_of(data)


cdef struct RecordFields:
    int8_t attributes
    int64_t timestampDelta
    int32_t offsetDelta
    Data key
    Data value
    int32_t headers


cdef inline const uint8_t *read_record(const uint8_t *p, const uint8_t *stop, RecordFields *fields) noexcept nogil:
    if stop - p < 1:
        return NULL
    fields.attributes = <int8_t>be8(p)
    p += 1
    p = varint64(p, stop, &fields.timestampDelta)
    if p == NULL:
        return NULL
    p = varint32(p, stop, &fields.offsetDelta)
    if p == NULL:
        return NULL
    p = varint32(p, stop, &fields.key.size)
    if p == NULL:
        return NULL
    fields.key.start = p
    if fields.key.size > stop - p:
        return NULL
    if fields.key.size > 0:
        p += fields.key.size
    p = varint32(p, stop, &fields.value.size)
    if p == NULL:
        return NULL
    fields.value.start = p
    if fields.value.size > stop - p:
        return NULL
    if fields.value.size > 0:
        p += fields.value.size
    p = varint32(p, stop, &fields.headers)
    if p == NULL:
        return NULL
    return p


cdef inline int64_t size_of_record(const RecordFields *fields) noexcept nogil:
    return (
        1
        + size_of_varint(zigzag64(fields.timestampDelta))
        + size_of_varint(zigzag64(fields.offsetDelta))
        + size_of_varint(zigzag64(fields.key.size))
        + bytes_of(&fields.key)
        + size_of_varint(zigzag64(fields.value.size))
        + bytes_of(&fields.value)
        + size_of_varint(zigzag64(fields.headers))
    )


cdef inline uint8_t *write_record(uint8_t *p, RecordFields *fields) noexcept nogil:
    put8(p, <uint8_t>fields.attributes)
    p += 1
    p = put_varint(p, zigzag64(fields.timestampDelta))
    p = put_varint(p, zigzag64(fields.offsetDelta))
    p = put_varint(p, zigzag64(fields.key.size))
    p = put_data(p, &fields.key)
    p = put_varint(p, zigzag64(fields.value.size))
    p = put_data(p, &fields.value)
    p = put_varint(p, zigzag64(fields.headers))
    return p


cdef struct RecordHeadFields:
    int8_t attributes
    int64_t timestampDelta
    int32_t offsetDelta


cdef inline const uint8_t *read_record_head(const uint8_t *p, const uint8_t *stop, RecordHeadFields *fields) noexcept nogil:
    if stop - p < 1:
        return NULL
    fields.attributes = <int8_t>be8(p)
    p += 1
    p = varint64(p, stop, &fields.timestampDelta)
    if p == NULL:
        return NULL
    p = varint32(p, stop, &fields.offsetDelta)
    if p == NULL:
        return NULL
    return p


cdef inline int64_t size_of_record_head(const RecordHeadFields *fields) noexcept nogil:
    return (
        1
        + size_of_varint(zigzag64(fields.timestampDelta))
        + size_of_varint(zigzag64(fields.offsetDelta))
    )


cdef inline uint8_t *write_record_head(uint8_t *p, RecordHeadFields *fields) noexcept nogil:
    put8(p, <uint8_t>fields.attributes)
    p += 1
    p = put_varint(p, zigzag64(fields.timestampDelta))
    p = put_varint(p, zigzag64(fields.offsetDelta))
    return p


cdef struct RecordHeaderFields:
    Data key
    Data value


cdef inline const uint8_t *read_record_header(const uint8_t *p, const uint8_t *stop, RecordHeaderFields *fields) noexcept nogil:
    p = varint32(p, stop, &fields.key.size)
    if p == NULL:
        return NULL
    fields.key.start = p
    if fields.key.size < 0 or fields.key.size > stop - p:
        return NULL
    p += fields.key.size
    p = varint32(p, stop, &fields.value.size)
    if p == NULL:
        return NULL
    fields.value.start = p
    if fields.value.size > stop - p:
        return NULL
    if fields.value.size > 0:
        p += fields.value.size
    return p


cdef struct MessageDataFields:
    Data key
    Data value


cdef inline const uint8_t *read_message_data(const uint8_t *p, const uint8_t *stop, MessageDataFields *fields) noexcept nogil:
    if stop - p < 4:
        return NULL
    fields.key.size = <int32_t>be32(p)
    p += 4
    fields.key.start = p
    if fields.key.size > stop - p:
        return NULL
    if fields.key.size > 0:
        p += fields.key.size
    if stop - p < 4:
        return NULL
    fields.value.size = <int32_t>be32(p)
    p += 4
    fields.value.start = p
    if fields.value.size > stop - p:
        return NULL
    if fields.value.size > 0:
        p += fields.value.size
    return p


cdef inline int64_t size_of_message_data(const MessageDataFields *fields) noexcept nogil:
    return (
        8
        + bytes_of(&fields.key)
        + bytes_of(&fields.value)
    )


cdef inline uint8_t *write_message_data(uint8_t *p, MessageDataFields *fields) noexcept nogil:
    put32(p, <uint32_t>fields.key.size)
    p += 4
    p = put_data(p, &fields.key)
    put32(p, <uint32_t>fields.value.size)
    p += 4
    p = put_data(p, &fields.value)
    return p


cdef struct ControlKeyFields:
    int16_t version
    int16_t type


cdef inline const uint8_t *read_control_key(const uint8_t *p, const uint8_t *stop, ControlKeyFields *fields) noexcept nogil:
    if stop - p < 4:
        return NULL
    fields.version = <int16_t>be16(p)
    fields.type = <int16_t>be16(p + 2)
    p += 4
    return p


cdef struct EndTxnMarkerFields:
    int16_t version
    int32_t coordinatorEpoch


cdef inline const uint8_t *read_end_txn_marker(const uint8_t *p, const uint8_t *stop, EndTxnMarkerFields *fields) noexcept nogil:
    if stop - p < 6:
        return NULL
    fields.version = <int16_t>be16(p)
    fields.coordinatorEpoch = <int32_t>be32(p + 2)
    p += 6
    return p


cdef struct CommitKeyFields:
    int16_t version
    Data group
    Data topic
    int32_t partition


cdef inline const uint8_t *read_commit_key(const uint8_t *p, const uint8_t *stop, CommitKeyFields *fields) noexcept nogil:
    if stop - p < 4:
        return NULL
    fields.version = <int16_t>be16(p)
    fields.group.size = <int16_t>be16(p + 2)
    p += 4
    fields.group.start = p
    if fields.group.size < 0 or fields.group.size > stop - p:
        return NULL
    p += fields.group.size
    if stop - p < 2:
        return NULL
    fields.topic.size = <int16_t>be16(p)
    p += 2
    fields.topic.start = p
    if fields.topic.size < 0 or fields.topic.size > stop - p:
        return NULL
    p += fields.topic.size
    if stop - p < 4:
        return NULL
    fields.partition = <int32_t>be32(p)
    p += 4
    return p


cdef inline int64_t size_of_commit_key(const CommitKeyFields *fields) noexcept nogil:
    return (
        10
        + bytes_of(&fields.group)
        + bytes_of(&fields.topic)
    )


cdef inline uint8_t *write_commit_key(uint8_t *p, CommitKeyFields *fields) noexcept nogil:
    put16(p, <uint16_t>fields.version)
    put16(p + 2, <uint16_t>fields.group.size)
    p += 4
    p = put_data(p, &fields.group)
    put16(p, <uint16_t>fields.topic.size)
    p += 2
    p = put_data(p, &fields.topic)
    put32(p, <uint32_t>fields.partition)
    p += 4
    return p


cdef struct CommitValueFields:
    int16_t version
    int64_t offset
    int32_t leaderEpoch
    Data metadata
    int64_t commitTimestamp


cdef inline const uint8_t *read_commit_value(const uint8_t *p, const uint8_t *stop, CommitValueFields *fields) noexcept nogil:
    if stop - p < 16:
        return NULL
    fields.version = <int16_t>be16(p)
    fields.offset = <int64_t>be64(p + 2)
    fields.leaderEpoch = <int32_t>be32(p + 10)
    fields.metadata.size = <int16_t>be16(p + 14)
    p += 16
    fields.metadata.start = p
    if fields.metadata.size < 0 or fields.metadata.size > stop - p:
        return NULL
    p += fields.metadata.size
    if stop - p < 8:
        return NULL
    fields.commitTimestamp = <int64_t>be64(p)
    p += 8
    return p


cdef inline int64_t size_of_commit_value(const CommitValueFields *fields) noexcept nogil:
    return (
        24
        + bytes_of(&fields.metadata)
    )


cdef inline uint8_t *write_commit_value(uint8_t *p, CommitValueFields *fields) noexcept nogil:
    put16(p, <uint16_t>fields.version)
    put64(p + 2, <uint64_t>fields.offset)
    put32(p + 10, <uint32_t>fields.leaderEpoch)
    put16(p + 14, <uint16_t>fields.metadata.size)
    p += 16
    p = put_data(p, &fields.metadata)
    put64(p, <uint64_t>fields.commitTimestamp)
    p += 8
    return p


cdef inline const uint8_t *read_size_of_record(
    const uint8_t *p, const uint8_t *stop, int32_t *size
) noexcept nogil:
    return varint32(p, stop, size)


cdef inline uint8_t *write_size_of_record(uint8_t *p, int32_t size) noexcept nogil:
    return put_varint(p, zigzag64(size))
