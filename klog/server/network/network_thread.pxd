from klog.server.network.connection cimport Connection as Client
from klog.server.network.deadlines cimport Deadlines as Scheduled, PutOffTasks as PutOff
from klog.server.network.frame_reading cimport FrameReader as Reader


cdef class NetworkThread:
    cdef readonly object name
    cdef object _settings
    cdef object _channel
    cdef object _clock_ms
    cdef object _counts
    cdef object _move_to
    cdef bint _bulk
    cdef readonly object memory
    cdef object _poller
    cdef object _precedence
    cdef readonly object turns
    cdef object _giving_way
    cdef object _waker
    cdef object _registry
    cdef object _send
    cdef Reader _reader
    cdef object _backlog
    cdef object _tasks
    cdef PutOff _put_off
    cdef Scheduled _deadlines
    cdef object _now_ms
    cdef object _drain_until_s
    cdef bint _retiring
    cdef object _ending
    cdef bint _ended
    cdef Py_ssize_t _arriving
    cdef readonly object _thread
    cdef readonly double waited_s

    cdef _wake(self)
    cdef _wait_ms(self)
    cdef _run_task(self, task)
    cdef _on_event(self, Client connection, long mask)
    cdef bint _send_and_resume(self, Client connection)
