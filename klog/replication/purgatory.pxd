cimport cython

from klog.replication.timing_wheel cimport TimerTask, TimingWheel as Wheel


cdef class DelayedOperation(TimerTask):
    cdef public bint completed
    cdef public Py_ssize_t listed
    cdef public object lock
    cdef public object on_left

    cpdef bint force_complete(self)
    cpdef bint safe_try_complete(self, key=*)


@cython.final
cdef class Timer:
    cdef object _clock_ms
    cdef object _wake
    cdef object _lock
    cdef Wheel _wheel
    cdef Py_ssize_t _waiting
    cdef object _sleeps_until_ms

    cpdef add(self, TimerTask task)
    cpdef cancel(self, TimerTask task)


@cython.final
cdef class Purgatory:
    cdef dict __dict__  # tests replace a method
    cdef readonly object name
    cdef Timer _timer
    cdef Py_ssize_t _purge_interval
    cdef object _lock
    cdef dict _watchers
    cdef readonly Py_ssize_t waiting
    cdef readonly Py_ssize_t watched
    cdef Py_ssize_t _left_over

    cpdef bint try_complete_else_watch(self, DelayedOperation operation, keys)
    cpdef bint watch(self, DelayedOperation operation, keys)
    cpdef check_and_complete(self, key)
    cdef _sweep(self)
