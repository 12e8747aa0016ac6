# BatchTable and RecordTable as structs of C pointers; `_columns.pxi` says how long the pointers are valid.


cdef array.array column(table, str name):
    cdef array.array found = getattr(table, name)
    longs(found)
    return found


cdef struct Batches:  # of a BatchTable
    Py_ssize_t rows
    int64_t origin
    int64_t *position
    int64_t *size
    int64_t *base_offset
    int64_t *last_offset
    int64_t *magic
    int64_t *crc
    int64_t *attributes
    int64_t *count
    int64_t *base_timestamp
    int64_t *max_timestamp
    int64_t *producer_id
    int64_t *producer_epoch
    int64_t *base_sequence
    int64_t *leader_epoch
    int64_t *valid  # this one and the next only after `open_checks`
    int64_t *computed_crc


cdef tuple BATCH_COLUMNS = (
    "position", "size", "base_offset", "last_offset", "magic", "crc", "attributes", "count", "base_timestamp",
    "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "leader_epoch",
)  # in the order of the struct, without those that `verify` fills


cdef int resize_batches(table, Py_ssize_t rows) except -1:
    for name in BATCH_COLUMNS:
        resize_column(column(table, name), rows)
    return 0


cdef int open_batches(Batches *batches, table) except -1:
    cdef int64_t **pointers = &batches.position
    cdef array.array one
    cdef Py_ssize_t i
    batches.origin = table.origin
    batches.rows = len(table.position)
    for i in range(14):
        one = column(table, <str>BATCH_COLUMNS[i])
        if len(one) != batches.rows:
            raise UsageError("columns of unequal length")
        pointers[i] = <int64_t *>one.data.as_longlongs
    return 0


cdef int open_checks(Batches *batches, table) except -1:
    """Of a table that was verified."""
    cdef array.array valid = column(table, "valid"), computed = column(table, "computed_crc")
    if len(valid) < batches.rows or len(computed) < batches.rows:
        raise UsageError("the table was not verified")
    batches.valid, batches.computed_crc = longs(valid), longs(computed)
    return 0


cdef struct Records:  # of a RecordTable
    Py_ssize_t rows  # written so far
    int64_t *batch
    int64_t *offset
    int64_t *timestamp
    int64_t *key_start
    int64_t *key_size
    int64_t *value_start
    int64_t *value_size
    int64_t *headers_start
    int64_t *header_count
    int64_t *record_size
    int64_t *crc
    int64_t *valid


cdef tuple RECORD_COLUMNS = (
    "batch", "offset", "timestamp", "key_start", "key_size", "value_start", "value_size", "headers_start",
    "header_count", "record_size", "crc", "valid",
)  # in the order of the struct


cdef int open_records(Records *records, table, Py_ssize_t more) except -1:
    """Add `more` uninitialised rows to the table; `close_records` removes those that were not written."""
    cdef int64_t **pointers = &records.batch
    cdef array.array one
    cdef Py_ssize_t i
    records.rows = len(table.offset)
    for i in range(12):
        one = column(table, <str>RECORD_COLUMNS[i])
        if len(one) != records.rows:
            raise UsageError("columns of unequal length")
    for i in range(12):
        one = column(table, <str>RECORD_COLUMNS[i])
        resize_column(one, records.rows + more)
        pointers[i] = <int64_t *>one.data.as_longlongs
    return 0


cdef int close_records(Records *records, table) except -1:
    for name in RECORD_COLUMNS:
        resize_column(column(table, name), records.rows)
    return 0
