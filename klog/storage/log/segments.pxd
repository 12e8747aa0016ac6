from klog.storage.log.segment cimport LogSegment as Segment


cdef class Segments:
    cdef public list _segments
    cdef public list bases
    cdef public Segment active
