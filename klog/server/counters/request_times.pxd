cdef class Timing:
    cdef readonly list counts
    cdef readonly long long sum_ns

    cpdef record(self, long long elapsed_ns)
    cpdef record_several(self, long long elapsed_ns, long long times)
