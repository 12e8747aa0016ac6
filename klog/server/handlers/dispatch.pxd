cdef class Dispatcher:
    cdef readonly dict _routes
    cdef readonly dict _runs
    cdef object _charging
    cdef object _counters
    cdef object _clock_ns

    cpdef handle_run(self, connection, bytearray buffer, Py_ssize_t start, Py_ssize_t end)
