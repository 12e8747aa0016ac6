cimport cython

from klog.replication.partition cimport Partition as FollowedPartition
from klog.storage.log.partition_log cimport PartitionLog as Log


cdef Log _lock_followed(FollowedPartition partition, leader_epoch)
@cython.locals(log=Log, end_offset="long long", before="long long")
cpdef follow(
    FollowedPartition partition,
    leader_epoch,
    offset,
    records,
    long long high_watermark,
    long long log_start_offset,
    long long now_ms,
)
cpdef append_copied(Log log, records, leader_epoch, now_ms)
