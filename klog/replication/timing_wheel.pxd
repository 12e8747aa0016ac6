cimport cython


cdef class TimerTask:
    cdef public _Bucket bucket
    cdef public long long due_ms


cdef class TimedCall(TimerTask):
    cdef object _call


@cython.final
cdef class _Bucket:
    cdef public dict tasks
    cdef public long long due_ms

    cdef add(self, TimerTask task)


@cython.final
cdef class _Wheel:
    cdef list buckets
    cdef long long now_ms
    cdef _Wheel overflow
    cdef long long span_ms
    cdef long long tick_ms


@cython.final
cdef class TimingWheel:
    cdef _Wheel _lowest
    cdef long long _wheel_size
    cdef list _due
    cdef long long _sequence

    @cython.locals(wheel=_Wheel, bucket=_Bucket)
    cpdef bint add(self, TimerTask task)
    cdef _move_clock(self, long long now_ms)
