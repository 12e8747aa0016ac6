cdef class TopicStats:
    cdef public long long messages_in
    cdef public long long produce_conversions
    cdef public long long bytes_in
    cdef public long long bytes_out
    cdef public long long bytes_rejected
    cdef public long long produces
    cdef public long long fetches
    cdef public long long failed_produces
    cdef public long long failed_fetches
    cdef public long long fetch_conversions
    cdef public long long replication_bytes_in
    cdef public long long replication_bytes_out
    cdef public long long reassignment_bytes_in
    cdef public long long reassignment_bytes_out
