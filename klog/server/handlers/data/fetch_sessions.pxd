cdef class SessionPartition:
    cdef public object entry
    cdef readonly long long high_watermark
    cdef readonly long long log_start_offset

    cpdef sent(self, entry, long long high_watermark, long long log_start_offset)


cdef class FetchSession:
    cdef readonly object created_ms
    cdef public object epoch
    cdef readonly object id
    cdef public bint is_old
    cdef readonly object lock
    cdef readonly dict partitions
    cdef readonly bint privileged
    cdef public object size
    cdef readonly bint uses_topic_ids

    cpdef list others(self, tuple key)


cdef class FetchSessions:
    cdef object _slots
    cdef object _clock_ms
    cdef object _random_id
    cdef object _eviction_ms
    cdef object _lock
    cdef readonly dict _sessions
    cdef readonly object _last_used_ms
    cdef readonly list _evictable
    cdef readonly list _evictable_by_followers
    cdef readonly object evictions

    cpdef FetchSession find(self, session_id, epoch, bint uses_topic_ids)
    cpdef bint answer_one(
        self,
        FetchSession session,
        epoch,
        tuple key,
        entry,
        long long high_watermark,
        long long log_start_offset,
    )
    cdef _touch(self, FetchSession session)
    cdef bint _is_old(self, FetchSession session, now_ms)
