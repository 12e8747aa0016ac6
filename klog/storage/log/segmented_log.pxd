from klog.storage.log.readable_log cimport ReadableLog


cdef class SegmentedLog(ReadableLog):
    cdef public object _clock_ms
    cdef public object _background
    cdef public object _jitter
    cdef public object _snapshots
    cdef public long long recovery_point
    cdef public long long last_flush_ms
    cdef public long long _unflushed_records
    cdef public long long cuts
    cdef public long long _cut_to
    cdef public long long _roll_ms
