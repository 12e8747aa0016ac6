from klog.server.network.connection cimport Connection as Client


cdef class FrameReader:
    cdef object _settings
    cdef object _may_block
    cdef object _work
    cdef object _run_frames
    cdef object _failed
    cdef object _memory
    cdef object _registry
    cdef object _send
    cdef object _hand_over
    cdef object _schedule
    cdef object _opening
    cdef object _held
    cdef bytearray _buffer
    cdef object _view
    cdef public object now_ms
    cdef public object paused

    cpdef may_read(self, Client connection)
    cpdef read(self, Client connection)
    cpdef resume(self, Client connection)
    cdef _read_once(self, Client connection)
    cdef _process(self, Client connection, Py_ssize_t size)
    cdef _handle_frames(self, Client connection, Py_ssize_t size)
    cdef _handle(self, Client connection, bytearray frame)
