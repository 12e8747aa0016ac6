cimport cython

from klog.replication.partition cimport Partition as Replica
from klog.server.handlers.partition_lookup cimport PartitionLookup as Lookup
from klog.server.counters.topic_stats cimport TopicStats as Counts


cdef class ProduceHandler:
    cdef object _access
    cdef Lookup _lookup
    cdef object _purgatory
    cdef object _clock_ms
    cdef object _timer_ms
    cdef object _topic_stats
    cdef object _verification

    cdef _write(self, request, produce, asked, refused, guards)
    @cython.locals(partition=Replica, stats=Counts, lookup=Lookup)
    cdef _append(self, tuple key, records, acks, now_ms, internal, guard)
