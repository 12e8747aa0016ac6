cimport cython

from klog.server.handlers.data.fetch_sessions cimport FetchSessions as Sessions
from klog.server.network.request cimport Request as AnyRequest


cdef class FetchHandler:
    cdef public object lookup
    cdef public Sessions sessions
    cdef public object purgatory  # tests replace a method of it
    cdef public object clock_ms
    cdef public object max_bytes
    cdef public object run_in_background
    cdef public object selector
    cdef public object quota
    cdef public object access
    cdef object _topic_stats
    cdef object _old

    cpdef _read_and(self, _Pending pending, go_on)
    cpdef _go_on(self, _Pending pending, reads)
    cpdef _read(self, _Pending pending, bint may_wait=*)
    cpdef _answer(self, _Pending pending, reads)
    cdef dict _wanted(self, fetch)
    cdef _readable_topics(self, request, fetch, context)
    cdef _limits(self, request, fetch)
    cdef tuple _readable(self, asked, readable)
    cdef _count(self, _Pending pending, reads)


@cython.final
cdef class _Pending:
    cdef public object request
    cdef public object fetch
    cdef public object context
    cdef public object limits
    cdef public object readable
    cdef public object quiet
    cdef public list refused
