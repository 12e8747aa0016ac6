# Messages of magic 0 and 1, plain and in compressed sets; `_pydecode` states the rules.


cdef struct Fields:
    int64_t key_start
    int64_t key_size
    int64_t value_start
    int64_t value_size


cdef bint read_fields(
    const uint8_t *data, int64_t at, int64_t end, int64_t magic, Fields *fields
) noexcept nogil:
    """False if key and value do not fit the message, which takes the bytes from `at` to `end`."""
    cdef MessageDataFields found
    cdef const uint8_t *p = data + at + (MESSAGE_V0_HEADER_BYTES if magic == 0 else MESSAGE_V1_HEADER_BYTES)
    if read_message_data(p, data + end, &found) == NULL:
        return False
    fields.key_size = found.key.size if found.key.size > -1 else -1
    fields.key_start = found.key.start - data
    fields.value_size = found.value.size if found.value.size > -1 else -1
    fields.value_start = found.value.start - data
    return True


cdef bint decode_message(
    const Buffer *buffer,
    int64_t at,
    int64_t end,
    int64_t magic,
    Py_ssize_t row,
    int64_t offset,
    int64_t timestamp,
    Records *out,
    Failure *failure,
) except -1:
    cdef Fields fields
    cdef Py_ssize_t n = out.rows
    cdef Span span
    cdef int64_t computed
    if not read_fields(buffer.start, at, end, magic, &fields):
        failure.fault = BAD_MESSAGE
        return False
    span = Span.__new__(Span)
    span.point(buffer.start + at + MESSAGE_CRC_FROM, end - at - MESSAGE_CRC_FROM)
    computed = crc32(span)
    out.batch[n] = row
    out.offset[n] = offset
    out.timestamp[n] = timestamp
    out.key_start[n] = fields.key_start
    out.key_size[n] = fields.key_size
    out.value_start[n] = fields.value_start
    out.value_size[n] = fields.value_size
    out.headers_start[n] = end
    out.header_count[n] = 0
    out.record_size[n] = end - at
    out.crc[n] = be32(buffer.start + at + MESSAGE_CRC_POSITION)
    out.valid[n] = computed == out.crc[n]
    if computed != out.crc[n]:
        confirm_crc32(span, computed)
    out.rows += 1
    return True


cdef struct FoundMessages:
    int64_t stop  # the end of the whole messages
    int64_t last_offset
    Py_ssize_t messages
    bint bad_size
    int64_t follows


cdef FoundMessages find_messages(const Buffer *buffer) noexcept nogil:
    cdef FoundMessages found
    cdef int64_t follows
    found.stop = 0
    found.last_offset = -1
    found.messages = 0
    found.bad_size = False
    while buffer.size - found.stop >= ENTRY_PREFIX_BYTES:
        follows = <int32_t>be32(buffer.start + found.stop + ENTRY_SIZE_POSITION)
        if follows < MIN_MESSAGE_SIZE:
            found.bad_size = True
            found.follows = follows
            break
        if buffer.size - found.stop < follows + ENTRY_PREFIX_BYTES:
            break
        found.last_offset = <int64_t>be64(buffer.start + found.stop + BATCH_BASE_OFFSET_POSITION)
        found.messages += 1
        found.stop += follows + ENTRY_PREFIX_BYTES
    return found


cdef int decode_inner(const Buffer *buffer, Batches *batches, Py_ssize_t row, records) except -1:
    cdef FoundMessages inner
    cdef Records out
    cdef Failure failure
    cdef int64_t magic = batches.magic[row], wrapper_offset = batches.last_offset[row], shift = 0
    cdef Py_ssize_t first
    cdef str problem = None
    if magic < 0:
        return fail(records, row, f"compressed message set of magic {magic}")
    inner = find_messages(buffer)
    if inner.bad_size:
        problem = f"inner message of {inner.follows} bytes, the smallest has {MIN_MESSAGE_SIZE}"
    elif inner.messages == 0:
        problem = "compressed message set holds no message"
    if problem is not None and magic == 1:
        return fail(records, row, problem)
    if magic == 1 and wrapper_offset != 0:
        if wrapper_offset < inner.last_offset:
            problem = f"wrapper offset {wrapper_offset} is below its last inner offset {inner.last_offset}"
            return fail(records, row, problem)
        shift = <int64_t>(<uint64_t>wrapper_offset - <uint64_t>inner.last_offset)
    failure.fault = NO_FAULT
    open_records(&out, records, inner.messages)
    first = out.rows
    try:
        append_inner(buffer, inner.stop, shift, batches, row, &out, &failure)
        if out.rows > first:
            batches.base_offset[row] = out.offset[first]
    finally:
        close_records(&out, records)
    if failure.fault != NO_FAULT:
        problem = described(&failure)
    return fail(records, row, problem) if problem is not None else 0


cdef int append_inner(
    const Buffer *buffer,
    int64_t stop,
    int64_t shift,
    const Batches *batches,
    Py_ssize_t row,
    Records *out,
    Failure *failure,
) except -1:
    """`stop` is the end of the whole messages that `find_messages` found."""
    cdef bint log_append_time = batches.magic[row] == 1 and batches.attributes[row] & TIMESTAMP_TYPE_BIT
    cdef int64_t at = 0, end, offset, timestamp
    cdef uint8_t magic
    cdef const uint8_t *p
    while at < stop:
        p = buffer.start + at
        end = at + <int64_t><int32_t>be32(p + ENTRY_SIZE_POSITION) + ENTRY_PREFIX_BYTES
        magic = p[MAGIC_POSITION]
        if p[MESSAGE_ATTRIBUTES_POSITION] & CODEC_MASK:
            failure.fault = INNER_COMPRESSED
            return 0
        timestamp = -1
        if magic == 1 and log_append_time:
            timestamp = batches.max_timestamp[row]
        elif magic != 0:
            timestamp = <int64_t>be64(p + MESSAGE_TIMESTAMP_POSITION)
        offset = wrapping_sum(<int64_t>be64(p + BATCH_BASE_OFFSET_POSITION), shift)
        if not decode_message(buffer, at, end, magic, row, offset, timestamp, out, failure):
            return 0
        at = end
    return 0
