cdef class Request:
    cdef object _client
    cdef public object amend
    cdef public object answered
    cdef public object answered_ns
    cdef public object api_key
    cdef public object api_version
    cdef public object before_answer
    cdef public object body
    cdef public object charge
    cdef public object closes
    cdef public object connection
    cdef public object correlation_id
    cdef public object entity
    cdef public object from_follower
    cdef public object header_end
    cdef public object is_framed
    cdef public object on_answered
    cdef public object on_io_thread
    cdef public object parked
    cdef public object parts
    cdef public object queued_ns
    cdef public object received_ms
    cdef public object size_bytes
    cdef public object throttle_ms

    cpdef park(self)
