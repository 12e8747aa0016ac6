cdef class Producers:
    cdef public dict by_id
    cdef public dict verifying
    cdef public long long end_offset
    cdef public list _open
    cdef public object _unreplicated
    cdef public object first_unstable_offset

    cpdef high_watermark_moved(self, long long high_watermark)
