cdef class UsualFetch:
    cdef readonly object version
    cdef readonly object correlation_id
    cdef readonly long long max_wait_ms
    cdef readonly long long min_bytes
    cdef readonly long long max_bytes
    cdef readonly bint committed
    cdef readonly object session_id
    cdef readonly long long session_epoch
    cdef readonly bytes topic
    cdef readonly object partition
    cdef readonly object current_leader_epoch
    cdef readonly object offset
    cdef readonly object log_start_offset
    cdef readonly object partition_max_bytes
    cdef readonly bint has_rack
    cdef readonly object end


cpdef UsualFetch read_usual_fetch(bytearray buffer, Py_ssize_t start, Py_ssize_t end)
