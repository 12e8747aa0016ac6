cdef class FetchSession:
    cdef public dict known
    cdef public bint _may_use_topic_ids
    cdef public object _id
    cdef public long long _epoch
    cdef public bint _uses_topic_ids
    cdef public set _without_id
    cdef public dict _names

    cpdef bint fits(self, changed, gone)
    cpdef full_request(self, entries)
    cpdef next_request(self, changed, gone)
    cpdef accept(self, response)
    cdef list _by_partition(self, response)
