from klog.replication.partition cimport Partition as FollowedPartition


cdef class PartitionFetch:
    cdef public object key
    cdef public FollowedPartition partition
    cdef public long long leader_epoch
    cdef public long long offset
    cdef public long long last_epoch
    cdef public long long lag
    cdef public object mode
    cdef public object error
    cdef public long long leader_end

    cpdef moved(self, long long offset, long long last_epoch)
