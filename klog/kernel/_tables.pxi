# Shared by the text kernels: the tables that they show, and the fields that both kinds of text have.

from libc.stdint cimport int64_t

from klog.formats.errors import UsageError

include "_columns.pxi"
include "_records.pxi"
include "_varint.pxi"
include "_derived.pxi"
include "_numbers.pxi"
include "_derived_records.pxi"

cdef struct Payload:
    const uint8_t *data
    Py_ssize_t size


cdef int load_batches(Batches *b, object table, Py_ssize_t first, Py_ssize_t last, bint checked) except -1:
    open_batches(b, table)
    require_rows(b.rows, first, last)
    if checked:
        open_checks(b, table)
    return 0


cdef int load_records(Records *r, object records, Py_ssize_t first, Py_ssize_t last) except -1:
    open_records(r, records, 0)
    require_rows(r.rows, first, last)
    return 0


cdef int require_rows(Py_ssize_t rows, Py_ssize_t first, Py_ssize_t last) except -1:
    if not 0 <= first <= last <= rows:
        raise ValueError(f"rows {first} to {last} of a table of {rows}")
    return 0


cdef inline void load_payload(Payload *p, const uint8_t[::1] data) noexcept:
    """The caller holds `data` while it uses the pointer."""
    p.size = data.shape[0]
    p.data = &data[0] if p.size else NULL


cdef struct Decoded:  # what a range of records is shown from
    Batches batches
    Records records
    Payload payload


cdef int load_decoded(
    Decoded *d, object table, object records, Py_ssize_t first, Py_ssize_t last, const uint8_t[::1] payload
) except -1:
    """The batches are checked as a table only; the rows `first` to `last` of the records are in range."""
    load_batches(&d.batches, table, 0, 0, False)
    load_records(&d.records, records, first, last)
    load_payload(&d.payload, payload)
    return 0


cdef inline int check_record(const Batches *b, const Records *r, Py_ssize_t row, const Payload *p) except -1:
    """Raise `FormatError` if the table points outside of the payload."""
    if not (
        0 <= r.batch[row] < b.rows
        and spans(r.key_start[row], r.key_size[row], p)
        and spans(r.value_start[row], r.value_size[row], p)
        and spans(r.headers_start[row], r.header_count[row], p)
    ):
        raise FormatError(f"record {row} of the table points outside of its payload of {p.size} bytes")
    return 0


cdef inline bint spans(long long start, long long size, const Payload *p) noexcept:
    return size <= 0 or (0 <= start <= p.size and size <= p.size - start)


cdef inline const char *timestamp_type(long long magic, long long attributes) noexcept:
    if magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if attributes & TIMESTAMP_TYPE_BIT else "CreateTime"


cdef inline const char *codec_name(long long attributes) noexcept:
    cdef int codec = attributes & CODEC_MASK
    if codec == 0:
        return "none"
    if codec == 1:
        return "gzip"
    if codec == 2:
        return "snappy"
    if codec == 3:
        return "lz4"
    return "zstd" if codec == 4 else "unknown"


cdef inline const char *boolean(bint value) noexcept:
    return "true" if value else "false"


cdef inline int32_t last_sequence(const Batches *b, Py_ssize_t row) noexcept:
    if b.base_sequence[row] == -1:
        return -1
    return sequence_after(
        wrap32(b.base_sequence[row]),
        wrap32(<long long>(<uint64_t>b.last_offset[row] - <uint64_t>b.base_offset[row])),
    )


cdef inline int32_t record_sequence(const Batches *b, Py_ssize_t row, long long offset) noexcept:
    if b.magic[row] < 2 or b.base_sequence[row] < 0:
        return -1
    return sequence_after(
        wrap32(b.base_sequence[row]), wrap32(<long long>(<uint64_t>offset - <uint64_t>b.base_offset[row]))
    )


cdef const uint8_t *next_header(const Payload *p, const uint8_t *at, RecordHeaderFields *header) except NULL:
    """Read the header at `at`; returns the position after it. Raises `FormatError`."""
    at = read_record_header(at, p.data + p.size, header)
    if at == NULL:
        raise FormatError("a header lies outside of its payload")
    return at


cdef inline const uint8_t *control_key(
    const Records *r, Py_ssize_t row, const Payload *p, ControlKeyFields *key
) noexcept:
    """Reads the key of a control record; NULL if it is too short."""
    cdef const uint8_t *start = p.data + r.key_start[row]
    return read_control_key(start, start + r.key_size[row], key)


cdef inline const uint8_t *marker(
    const Records *r, Py_ssize_t row, const Payload *p, EndTxnMarkerFields *found
) noexcept:
    """Reads the value of a control record as a marker; NULL if it is too short."""
    cdef const uint8_t *start = p.data + r.value_start[row]
    return read_end_txn_marker(start, start + r.value_size[row], found)
