from klog.replication.fetching.partition_fetch cimport PartitionFetch as Fetched


cdef class FetchedPartitions:
    cdef public object leader_id
    cdef public dict states
    cdef public set failed
    cdef public dict preparing
    cdef public dict delayed
    cdef public dict stale
    cdef public object _settings
    cdef public object _replicas

    cpdef bint is_served(self, Fetched state)
