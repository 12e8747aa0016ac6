from klog.metadata.cache cimport MetadataCache as Metadata
from klog.replication.replica_manager cimport ReplicaManager as Replicas


cdef class PartitionLookup:
    cdef readonly Replicas replicas
    cdef readonly Metadata metadata
    cdef tuple _names
