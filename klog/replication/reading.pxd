from klog.replication.purgatory cimport DelayedOperation


cdef class DelayedFetch(DelayedOperation):
    cdef object _replicas
    cdef dict _awaited
    cdef dict _quiet
    cdef object _limits
    cdef object _read_again
    cdef dict _ready_bytes
    cdef long long _ready_total

    cdef list _not_quiet(self)
    cdef _no_longer_quiet(self, key)
    cdef long long _ready(self, awaited)
