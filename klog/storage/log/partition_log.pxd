cimport cython

from klog.storage.log.run_limits cimport RunLimits as Limits
from klog.storage.log.segment cimport LogSegment
from klog.storage.log.segmented_log cimport SegmentedLog


@cython.final
cdef class PartitionLog(SegmentedLog):
    cdef public str topic_id
    cdef public object is_confirmed
    cdef public Limits _run_limits

    cpdef append_as_leader(self, data, long long leader_epoch, long long now_ms, origin=*, guard=*)
    cdef _append_as_leader(self, data, long long leader_epoch, long long now_ms, origin, guard)
    cpdef append_as_follower(self, data, long long leader_epoch, long long now_ms)
    @cython.locals(first_offset="long long", last_offset="long long")
    cdef _append_batch(self, data, batch, long long now_ms)
    cdef _append_batches(self, data, long long leader_epoch, long long now_ms)
    cdef _write_valid(self, valid, long long now_ms)
    @cython.locals(segment=LogSegment)
    cdef _write(
        self,
        data,
        tuple batches,
        object last_offset,
        long long max_timestamp,
        long long roll_offset,
        long long now_ms,
    )
    cdef LogSegment _segment_for(
        self,
        long long size_bytes,
        object last_offset,
        long long max_timestamp,
        long long roll_offset,
        long long now_ms,
    )
    cdef _extended_to(self, long long last_offset)
    cdef _written(self)
    @cython.locals(records="long long")
    cpdef bint append_run(self, object run, long long leader_epoch, long long now_ms, guard=*)
