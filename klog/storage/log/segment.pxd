cimport cython

from klog.storage.log.index_files cimport OffsetIndexFile as OffsetIndex, TimeIndexFile as TimeIndex


@cython.final
cdef class LogSegment:
    cdef dict __dict__  # tests replace methods
    cdef public long long base_offset
    cdef public str directory
    cdef public long long created_ms
    cdef public object config
    cdef public object file
    cdef public long long size
    cdef public OffsetIndex _offset_index
    cdef public TimeIndex _time_index
    cdef public bint _preallocated
    cdef public long long bytes_since_index_entry
    cdef public object _max_timestamp
    cdef public object _first_timestamp
    cdef public bint _has_no_aborted
    cdef public dict _found
    cdef public dict known_batches
    cdef public bint indexes_rebuilt

    cpdef find(self, long long offset, bint may_wait=*)
    cpdef bint should_roll(
        self,
        long long incoming_bytes,
        long long last_offset,
        long long max_timestamp,
        long long now_ms,
        long long roll_ms,
    )
    cdef _write(self, data, long long position)
    cpdef bint takes_run(self, object run, long long last_offset, long long roll_ms)
    cpdef append_run(self, object run, long long first_offset, long long leader_epoch)
