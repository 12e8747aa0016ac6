"""Broker configs of consumer groups, producers and transactions.

Names, types, defaults and limits of Kafka 3.9, in alphabetical order.
"""

from __future__ import annotations

from typing import Final

from klog.config.key_table import config_keys

KEYS: Final = config_keys("""
client.quota.callback.class | class
  A Java class that decides which quota applies to a request.
group.consumer.assignors |\
  list org.apache.kafka.coordinator.group.assignor.UniformAssignor,\
  org.apache.kafka.coordinator.group.assignor.RangeAssignor
  The assignors of groups of the new protocol (KIP-848), the default one first.
group.consumer.heartbeat.interval.ms | int 5000 | at least 1
  How often members of groups of the new protocol send a heartbeat, in ms.
group.consumer.max.heartbeat.interval.ms | int 15000 | at least 1
  The longest heartbeat interval that a group may set, in ms.
group.consumer.max.session.timeout.ms | int 60000 | at least 1
  The longest session timeout that a group may set, in ms.
group.consumer.max.size | int 2147483647 | at least 1
  How many members a group of the new protocol may have.
group.consumer.migration.policy |\
  string disabled | one of DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL in any case | internal
  Whether groups may change between the classic and the new protocol while they have members: disabled,
  upgrade, downgrade or bidirectional. Without it they may where the broker accepts both protocols.
group.consumer.min.heartbeat.interval.ms | int 5000 | at least 1
  The shortest heartbeat interval that a group may set, in ms.
group.consumer.min.session.timeout.ms | int 45000 | at least 1
  The shortest session timeout that a group may set, in ms.
group.consumer.session.timeout.ms | int 45000 | at least 1
  After how long without a heartbeat a member of a group of the new protocol is removed, in ms.
group.coordinator.append.linger.ms | int 10 | at least 0
  How long the coordinator collects records before it writes them, in ms.
group.coordinator.new.enable | boolean false | internal
  Whether the new group coordinator is used.
group.coordinator.rebalance.protocols | list classic | all of consumer, classic, share, unknown
  The protocols of groups that the broker accepts: classic, consumer. Without it a broker with ZooKeeper
  accepts classic, one with the embedded store both.
group.coordinator.threads | int 1 | at least 1
  The number of threads of the new group coordinator.
group.initial.rebalance.delay.ms | int 3000
  How long the first rebalance of an empty group waits for more members, in ms.
group.max.session.timeout.ms | int 1800000
  The longest session timeout that a member may ask for, in ms.
group.max.size | int 2147483647 | at least 1
  How many members a group may have.
group.min.session.timeout.ms | int 6000
  The shortest session timeout that a member may ask for, in ms.
offset.metadata.max.bytes | int 4096
  The size of the largest metadata text of a committed offset, in bytes.
offsets.commit.required.acks | short -1
  The acks that a commit of offsets waits for; -1 means all replicas in sync.
offsets.commit.timeout.ms | int 5000 | at least 1
  How long a commit of offsets may take until all replicas have it, in ms.
offsets.load.buffer.size | int 5242880 | at least 1
  How many bytes are read at a time when offsets are loaded into memory.
offsets.retention.check.interval.ms | long 600000 | at least 1
  How often the broker looks for expired offsets, in ms.
offsets.retention.minutes | int 10080 | at least 1
  How long committed offsets are kept after their group became empty, in minutes.
offsets.topic.compression.codec | int 0
  The codec of __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
offsets.topic.num.partitions | int 50 | at least 1
  The number of partitions of __consumer_offsets. It must not change later.
offsets.topic.replication.factor | short 3 | at least 1
  The number of replicas of __consumer_offsets. The topic is not created before the cluster has as many
  brokers.
offsets.topic.segment.bytes | int 104857600 | at least 1
  The segment size of __consumer_offsets. Small segments are loaded and compacted faster.
producer.id.expiration.check.interval.ms | int 600000 | at least 1 | internal
  How often the broker looks for expired producer ids, in ms.
producer.id.expiration.ms | int 86400000 | at least 1 | cluster-wide
  After how long without a write the state of a producer id is removed, in ms.
transaction.abort.timed.out.transaction.cleanup.interval.ms | int 10000 | at least 1
  How often the broker looks for transactions that took too long, and aborts them, in ms.
transaction.max.timeout.ms | int 900000 | at least 1
  The longest transaction timeout that a producer may ask for, in ms.
transaction.partition.verification.enable | boolean true | cluster-wide
  Whether the broker checks that a partition belongs to the transaction before it accepts transactional
  records.
transaction.remove.expired.transaction.cleanup.interval.ms | int 3600000 | at least 1
  How often the broker looks for expired transactional ids, and removes them, in ms.
transaction.state.log.load.buffer.size | int 5242880 | at least 1
  How many bytes are read at a time when transactions are loaded into memory.
transaction.state.log.min.isr | int 2 | at least 1
  The min.insync.replicas of __transaction_state.
transaction.state.log.num.partitions | int 50 | at least 1
  The number of partitions of __transaction_state. It must not change later.
transaction.state.log.replication.factor | short 3 | at least 1
  The number of replicas of __transaction_state. The topic is not created before the cluster has as many
  brokers.
transaction.state.log.segment.bytes | int 104857600 | at least 1
  The segment size of __transaction_state. Small segments are loaded and compacted faster.
transactional.id.expiration.ms | int 604800000 | at least 1
  After how long without a transaction a transactional id is forgotten, in ms.
""")
