from klog.metadata.cache cimport MetadataCache as Metadata
from klog.replication.partition cimport Partition as Replica
from klog.replication.replica_manager cimport ReplicaManager as Replicas
from klog.server.handlers.partition_lookup cimport PartitionLookup as Lookup


cdef class Target:
    cdef readonly tuple key
    cdef readonly Replica partition
    cdef readonly object topic_id
    cdef readonly bint is_internal
    cdef dict _produced
    cdef dict _fetched

    cpdef produced(self, version)
    cpdef fetched(self, version, committed)


cdef class _State:
    cdef readonly object cluster
    cdef readonly object replicas
    cdef readonly dict by_name
    cdef readonly dict by_id


cdef class RememberedTargets:
    cdef Lookup _lookup
    cdef Replicas _replicas
    cdef Metadata _metadata
    cdef _State _state

    cpdef Target find(self, bytes topic, index, bint by_id)
    cdef Target _new_target(self, _State state, bytes topic, index, bint by_id)
