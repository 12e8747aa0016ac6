from klog.coordinator.runtime.tasks cimport OrderedEffects
from klog.coordinator.transactions.transaction cimport Transaction as Id


cdef class TransactionPartition(OrderedEffects):
    cdef public object number
    cdef public object leader_epoch
    cdef public dict transactions
    cdef public object closed
    cdef public object completions_waiting
    cdef object _services
    cdef object _sending

    cpdef now_ms(self)
    cpdef get(self, transactional_id)
    cpdef put_effects(self, transaction)
    cdef _append(self, batch, on_done, timeout_ms)
