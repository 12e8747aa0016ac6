cdef class EpochFile:
    cdef public str _path
    cdef public object _epochs
    cdef public bint _is_on_disk
    cdef public long long latest
    cdef public long long _latest_start

    cpdef assign(self, long long epoch, long long start_offset)
