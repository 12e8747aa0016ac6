cdef class Timing:
    cdef readonly list counts
    cdef readonly long long sum_ns

    cpdef record(self, long long elapsed_ns)
    cpdef record_several(self, long long elapsed_ns, long long times)


cdef class ApiCounter:
    cdef public object failures
    cdef readonly Timing local
    cdef readonly Timing queues
    cdef readonly Timing remotes
    cdef readonly Timing response_queues
    cdef readonly Timing sends
    cdef readonly Timing totals

    cpdef handled(self, connection, long long requests, long long start_ns, long long now_ns)
    cpdef sent(self, long long requests, long long spent_ns, long long send_ns)
