cimport cython

from klog.replication.fetching.fetched_partitions cimport FetchedPartitions as Partitions
from klog.replication.fetching.partition_fetch cimport PartitionFetch as Fetched
from klog.replication.fetching.session cimport FetchSession as Session


cdef class Fetcher:
    cdef public object leader_id
    cdef public object _settings
    cdef public object _broker_epoch
    cdef public object _wall_clock_ms
    cdef public object _quota
    cdef public Partitions _partitions
    cdef public object _alignment
    cdef public Session _session
    cdef public set _held_back
    cdef public object _logs_seen_ms

    @cython.locals(partitions=Partitions)
    cpdef next_request(self, now_ms)
    @cython.locals(partitions=Partitions, session=Session, changed=dict, gone=list, stale=dict)
    cdef _next_fetch(self, now_ms)
    @cython.locals(state=Fetched, states=dict, stale=dict)
    cdef _notice_logs(self, now_ms)
    @cython.locals(stale=dict)
    cdef bint _is_over_limit(self, now_ms)
    @cython.locals(partitions=Partitions, state=Fetched)
    cdef _entry(self, key, bint is_over_limit, now_ms)
    cdef bint _is_throttled(self, key)
    cdef _fetch(self, session)
    cpdef answered(self, request, answer, now_ms)
    @cython.locals(partitions=Partitions, session=Session, state=Fetched)
    cdef _fetched(self, response, progress, now_ms)
    cdef _partition_fetched(self, Fetched state, fetched, progress, now_ms)
    @cython.locals(partitions=Partitions)
    cdef _take(self, Fetched state, fetched, progress, now_ms)
