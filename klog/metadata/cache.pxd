cdef class MetadataCache:
    cdef readonly object snapshot
    cdef object _writing
    cdef bint _updated
