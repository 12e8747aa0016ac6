from klog.server.network.connection cimport Connection as Client


cdef class Sender:
    cdef object _registry

    cpdef bint send(self, Client connection)
