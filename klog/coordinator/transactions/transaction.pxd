cdef class Transaction:
    cdef public str transactional_id
    cdef public object record
    cdef public object pending
    cdef public object unmarked
    cdef object _last
    cdef object _fence_failed
    cdef object _superseded
    cdef list _effects

    cpdef list take_effects(self)
