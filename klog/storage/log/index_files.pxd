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
