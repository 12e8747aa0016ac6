cimport cython


@cython.final
cdef class Outbound:
    cdef object _is_cached
    cdef object _items
    cdef object _tls
    cdef public object is_cold
    cdef public object size_bytes

    cpdef add(self, part)
    cdef _send_buffers(self, sock)
    cdef _consume(self, sent)
