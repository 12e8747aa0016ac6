cimport cython

from klog.storage.log.partition_log cimport PartitionLog as Log


@cython.final
cdef class Partition:
    cdef public object topic_partition
    cdef public object lock
    cdef public Log log
    cdef public object state
    cdef public object topic_id
    cdef public object context
    cdef public dict followers

    cpdef Log lock_log(self)
    cpdef read_for_consumer(self, long long offset, long long max_bytes, current_leader_epoch, bint committed)
    cpdef append(self, data, acks, long long now_ms, origin=*, leader_epoch=*, guard=*)
    cpdef append_run(self, object run, long long now_ms, leader_epoch=*, bint may_wait=*, guard=*)
    cdef bint _advance_high_watermark(self, Log log)
