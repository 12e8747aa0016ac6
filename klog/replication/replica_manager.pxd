cimport cython


@cython.final
cdef class ReplicaManager:
    cdef readonly object broker_id
    cdef public dict partitions  # tests empty it
    cdef readonly frozenset offline
    cdef readonly object controller_epoch
    cdef object _context
    cdef object _logs
    cdef object _fetch_purgatory
    cdef object _produce_purgatory
    cdef object _delete_purgatory
    cdef list _listeners
    cdef object _lock
    cdef set _stopped
    cdef object _changing
    cdef public object _read_topic_ids  # tests replace it

    cpdef appended(self, key, bint high_watermark_moved)
