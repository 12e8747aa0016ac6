from klog.protocol.usual_fetch cimport UsualFetch as Usual
from klog.replication.partition cimport Partition as Replica
from klog.replication.replica_manager cimport ReplicaManager as Replicas
from klog.server.handlers.data.fetch_sessions cimport FetchSessions as Sessions
from klog.server.handlers.data.remembered_targets cimport RememberedTargets as Targets, Target as Remembered
from klog.server.counters.request_times cimport ApiCounter as Counter


cdef class FetchRuns:
    cdef object _topics
    cdef Replicas _replicas
    cdef Targets _targets
    cdef Sessions _sessions
    cdef object _max_bytes
    cdef object _topic_stats
    cdef Counter _counter
    cdef object _clock_ns
    cdef bint _may_choose_replica

    cpdef handle(self, connection, bytearray buffer, Py_ssize_t start, Py_ssize_t end)
    cdef _read(self, Usual fetch, Replica partition)
    cdef bint _may_read(self, connection, topic)
    cdef bint _may_read_all(self, connection, list others)
    cdef _read_in_session(self, connection, Usual fetch, Remembered target)
    cdef bint _are_quiet(self, list others, Usual fetch)
