cimport cython

from klog.replication.replica_manager cimport ReplicaManager as Replicas
from klog.server.handlers.data.remembered_targets cimport RememberedTargets as Targets, Target
from klog.server.counters.request_times cimport ApiCounter as Counter
from klog.server.counters.topic_stats cimport TopicStats


cdef class ProduceRuns:
    cdef object _topics
    cdef object _ids
    cdef Replicas _replicas
    cdef Targets _targets
    cdef object _clock_ms
    cdef object _topic_stats
    cdef Counter _counter
    cdef object _waits
    cdef object _verification
    cdef object _clock_ns
    cdef list _unused

    cpdef handle(self, connection, bytearray buffer, Py_ssize_t start, Py_ssize_t end)
    cdef _count(self, run, connection, long long start_ns)
    @cython.locals(stats=TopicStats)
    cdef bint _write(self, run, connection, bytearray buffer, Py_ssize_t start, long long start_ns)
