from klog.storage.log.epoch_file cimport EpochFile as Epochs
from klog.storage.log.producers cimport Producers
from klog.storage.log.segments cimport Segments as LogSegments


cdef class ReadableLog:
    cdef dict __dict__  # tests replace methods
    cdef object __weakref__  # and look whether it is still referred to
    cdef public object partition
    cdef public str directory
    cdef public object config
    cdef public object lock
    cdef public LogSegments segments
    cdef public Producers producers
    cdef public Epochs epochs
    cdef public long long log_start_offset
    cdef public long long log_end_offset
    cdef public long long high_watermark
    cdef public object earlier
    cdef public bint closed

    cpdef read_locked(
        self,
        long long offset,
        long long max_bytes,
        long long limit_offset,
        bint at_least_one,
        bint committed,
        bint may_wait,
    )
    cdef _read(
        self,
        long long offset,
        long long max_bytes,
        long long limit_offset,
        bint at_least_one,
        bint committed,
        bint may_wait,
    )
    cpdef bint raise_high_watermark(self, long long offset)
