cimport cython

from klog.storage.log.segment cimport LogSegment
from klog.storage.log.segments cimport Segments as LogSegments


@cython.locals(segment=LogSegment)
cpdef find_range(
    LogSegments segments,
    long long offset,
    long long limit_offset,
    long long log_end_offset,
    long long max_bytes,
    bint at_least_one,
    bint may_wait=*,
)
