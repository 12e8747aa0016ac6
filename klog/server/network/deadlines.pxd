cimport cython


@cython.final
cdef class Deadlines:
    cdef list _heap
    cdef long long _number

    cpdef wait_ms(self, long long now_ms, long long most_ms)
    cpdef list take_due(self, long long now_ms)


@cython.final
cdef class PutOffTasks:
    cdef object _tasks
    cdef long long _since_ms

