cimport cython


@cython.locals(size=Py_ssize_t, middle=Py_ssize_t, found=tuple)
cdef Py_ssize_t _up_to(entries, entry, Py_ssize_t low, Py_ssize_t high, value, Py_ssize_t column) except -1


cdef class _IndexFile:
    cdef public str path
    cdef public object entry
    cdef public object _probed
    cdef public object _map
    cdef public long long base_offset
    cdef public long long max_entries
    cdef public long long entries
    cdef public long long _allocated_bytes


cdef class OffsetIndexFile(_IndexFile):
    cdef public object last


cdef class TimeIndexFile(_IndexFile):
    cdef public object last
