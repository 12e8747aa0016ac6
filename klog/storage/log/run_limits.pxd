cdef class RunLimits:
    cdef bint _as_is
    cdef bint _keys_needed
    cdef long long _max_bytes
    cdef long long _before_max_ms
    cdef long long _after_max_ms
    cdef readonly long long flush_messages

    cpdef bint allow(self, object run, long long now_ms)
