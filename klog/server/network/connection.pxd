cdef class Connection:
    cdef object __weakref__
    cdef public object authentication
    cdef public object closed
    cdef public object closing
    cdef public object frame
    cdef public object handed_over
    cdef public object held
    cdef public object in_flight
    cdef public object last_active_ms
    cdef public object listener
    cdef public object lock
    cdef public object mask
    cdef public object muted
    cdef public object network
    cdef public object outbound
    cdef public object peer
    cdef public object pending
    cdef public object phase
    cdef public object principal
    cdef public object session
    cdef public object socket
    cdef public object taken_bytes
    cdef public object throttle_ms
    cdef public object traffic
    cdef public list unsent

    cpdef is_busy(self)
    cpdef give_back_memory(self)
    cpdef queue_answer(self, request)
    cpdef count_sent(self)
