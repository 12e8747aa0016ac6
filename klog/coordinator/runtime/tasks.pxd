cimport cython


@cython.final
cdef class TaskQueue:
    cdef object _tasks
    cdef object _running

    cpdef put(self, task)
    cpdef run(self)
    cdef _run(self)


@cython.final
cdef class _Held:
    cdef object _lock
    cdef TaskQueue _tasks


cdef class OrderedEffects:
    cdef public object _lock
    cdef public TaskQueue _tasks
    cdef public _Held _held

    cpdef lock(self)
    cpdef put(self, task)
