cimport cython


@cython.final
cdef class ConnectionTraffic:
    cdef public long long moved_bytes
    cdef public long long since_ms
    cdef public long long turns
