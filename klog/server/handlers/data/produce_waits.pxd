cimport cython

from klog.replication.purgatory cimport Purgatory as Waiting
from klog.server.counters.request_times cimport ApiCounter as Counter


@cython.final
cdef class ProduceWaits:
    cdef readonly object lookup
    cdef readonly Waiting purgatory
    cdef readonly object timer_ms
    cdef readonly Counter counter
    cdef readonly object clock_ns
