"""Broker configs of the cluster, groups, the log, the network and replication.

Names, types, defaults and limits of Kafka 3.9, in alphabetical order in each table.
"""

from __future__ import annotations

from typing import Final

from klog.config.key_table import config_keys

# Identity, ZooKeeper, topics and the controller.
_CLUSTER: Final = config_keys("""
alter.config.policy.class.name | class
  A Java class that decides whether a change of configs is allowed.
auto.create.topics.enable | boolean true
  Whether a topic is created when a client first asks for it.
broker.id | int -1
  The number of this broker, different for each broker of the cluster. -1 lets the broker choose one above
  reserved.broker.max.id and keep it.
broker.id.generation.enable | boolean true
  Whether a broker with broker.id=-1 may choose a number. If false, it does not start without one.
broker.rack | string
  The rack or zone of this broker. Replicas of new partitions are spread over racks.
controlled.shutdown.enable | boolean true
  Whether the broker hands its partitions to other brokers before it stops.
controlled.shutdown.max.retries | int 3
  How often a controlled shutdown is tried before the broker stops anyway.
controlled.shutdown.retry.backoff.ms | long 5000
  The pause between attempts of a controlled shutdown, in ms.
controller.socket.timeout.ms | int 30000
  How long the controller waits for an answer of another broker, in ms.
create.topic.policy.class.name | class
  A Java class that decides whether a topic may be created.
default.replication.factor | int 1
  The number of replicas of topics that are created without one, automatically created ones included.
delete.topic.enable | boolean true
  Whether topics can be deleted. If false, requests to delete topics are refused.
inter.broker.protocol.version | string 3.9-IV0 | Kafka version
  The version of the protocol between brokers. It is raised after all brokers of a cluster were upgraded.
num.partitions | int 1 | at least 1
  The number of partitions of topics that are created without one.
reserved.broker.max.id | int 1000 | at least 0
  The largest number that may be given as broker.id. Generated ids are above it.
zookeeper.clientCnxnSocket | string
  A Java class for ZooKeeper connections; TLS needs org.apache.zookeeper.ClientCnxnSocketNetty.
zookeeper.connect | string
  The ZooKeeper servers, host:port with commas between them, and behind the last one the path under which
  the cluster keeps its data, such as zk1:2181,zk2:2181/kafka.
zookeeper.connection.timeout.ms | int
  How long the broker tries to connect to ZooKeeper, in ms. Without a value it is
  zookeeper.session.timeout.ms.
zookeeper.max.in.flight.requests | int 10 | at least 1
  How many requests to ZooKeeper may wait for answers at a time.
zookeeper.session.timeout.ms | int 18000
  After how long without a sign of life ZooKeeper ends the broker's session, in ms. The cluster then takes
  the broker for dead.
zookeeper.set.acl | boolean false
  Whether znodes are created so that only the broker's own user may change them.
""")
# Consumer groups, producers and transactions.
_GROUPS: Final = config_keys("""
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
# The log: directories, segments, retention, cleaning, flushing.
_LOG: Final = config_keys("""
compression.gzip.level | int -1 | gzip level | cluster-wide
compression.lz4.level | int 9 | 1 to 17 | cluster-wide
compression.type | string producer | one of uncompressed, zstd, lz4, snappy, gzip, producer | cluster-wide
compression.zstd.level | int 3 | -131072 to 22 | cluster-wide
delete.records.purgatory.purge.interval.requests | int 1
  After how many finished DeleteRecords requests those that still occupy memory are removed.
log.cleaner.backoff.ms | long 15000 | at least 0 | cluster-wide
  How long the cleaner sleeps if there is nothing to clean, in ms.
log.cleaner.dedupe.buffer.size | long 134217728 | cluster-wide
  The memory for the maps of keys of all cleaner threads together, in bytes. A larger map lets one pass
  cover more of a log.
log.cleaner.delete.retention.ms | long 86400000 | at least 0 | cluster-wide
log.cleaner.enable | boolean true
  Whether the broker compacts logs. It must be true for topics with cleanup.policy=compact,
  __consumer_offsets included.
log.cleaner.io.buffer.load.factor | double 0.9 | cluster-wide
  How full the map of keys may become, 0 to 1. Higher values clean more of a log at a time, with more
  collisions of keys.
log.cleaner.io.buffer.size | int 524288 | at least 0 | cluster-wide
  The memory for reading and writing of all cleaner threads together, in bytes.
log.cleaner.io.max.bytes.per.second | double 1.7976931348623157E308 | cluster-wide
  How many bytes a second all cleaner threads together may read and write.
log.cleaner.max.compaction.lag.ms | long 9223372036854775807 | at least 1 | cluster-wide
log.cleaner.min.cleanable.ratio | double 0.5 | 0 to 1 | cluster-wide
log.cleaner.min.compaction.lag.ms | long 0 | at least 0 | cluster-wide
log.cleaner.threads | int 1 | at least 0 | cluster-wide
  The number of cleaner threads.
log.cleanup.policy | list delete | all of compact, delete | cluster-wide
log.dir | string /tmp/kafka-logs
  The directory of the logs, if log.dirs is not set.
log.dirs | string
  The directories of the logs, with commas between them. Without a value it is log.dir.
log.flush.interval.messages | long 9223372036854775807 | at least 1 | cluster-wide
log.flush.interval.ms | long | cluster-wide
log.flush.offset.checkpoint.interval.ms | int 60000 | at least 0
  How often the file recovery-point-offset-checkpoint is written, in ms. After a crash, logs are checked
  from these offsets on.
log.flush.scheduler.interval.ms | long 9223372036854775807
  How often the broker looks for logs that are due to be forced to disk, in ms.
log.flush.start.offset.checkpoint.interval.ms | int 60000 | at least 0
  How often the file log-start-offset-checkpoint is written, in ms. Deleted records stay deleted after a
  crash as far as it says.
log.index.interval.bytes | int 4096 | at least 0 | cluster-wide
log.index.size.max.bytes | int 10485760 | at least 4 | cluster-wide
log.initial.task.delay.ms | long 30000 | at least 0 | internal
  How long after the start retention, flushing and checkpoints begin, in ms.
log.message.downconversion.enable | boolean true | cluster-wide
log.message.format.version | string 3.0-IV1 | Kafka version
log.message.timestamp.after.max.ms | long 9223372036854775807 | at least 0 | cluster-wide
log.message.timestamp.before.max.ms | long 9223372036854775807 | at least 0 | cluster-wide
log.message.timestamp.difference.max.ms | long 9223372036854775807 | at least 0 | cluster-wide
log.message.timestamp.type | string CreateTime | one of CreateTime, LogAppendTime | cluster-wide
log.preallocate | boolean false | cluster-wide
log.retention.bytes | long -1 | cluster-wide
log.retention.check.interval.ms | long 300000 | at least 1
  How often the broker looks for segments to delete, in ms.
log.retention.hours | int 168
log.retention.minutes | int
log.retention.ms | long | cluster-wide
log.roll.hours | int 168 | at least 1
log.roll.jitter.hours | int 0 | at least 0
log.roll.jitter.ms | long | cluster-wide
log.roll.ms | long | cluster-wide
log.segment.bytes | int 1073741824 | at least 14 | cluster-wide
log.segment.delete.delay.ms | long 60000 | at least 0 | cluster-wide
message.max.bytes | int 1048588 | at least 0 | cluster-wide
min.insync.replicas | int 1 | at least 1 | cluster-wide
num.recovery.threads.per.data.dir | int 1 | at least 1 | cluster-wide
  How many threads check the logs of each directory at the start after an unclean stop, and flush them at a
  stop.
""")
# Listeners, connections, requests and client quotas.
_NETWORK: Final = config_keys("""
advertised.listeners | string | per-broker
  The addresses that clients are told to connect to, name://host:port with commas between them. Without a
  value they are those of listeners. Needed behind NAT, in containers and in clouds.
background.threads | int 10 | at least 1 | cluster-wide
  The number of threads for background tasks.
connections.max.idle.ms | long 600000
  After how long without traffic a connection is closed, in ms.
control.plane.listener.name | string
  The listener for the requests of the controller. Without a value they arrive on the same listener as all
  others.
controller.quota.window.num | int 11 | at least 1
  How many time windows the quota of controller mutations is measured over.
controller.quota.window.size.seconds | int 1 | at least 1
  The length of each time window of the quota of controller mutations, in seconds.
fetch.max.bytes | int 57671680 | at least 1024
  How many bytes one Fetch answer holds at most. A first batch that is larger is sent anyway.
fetch.purgatory.purge.interval.requests | int 1000
  After how many finished Fetch requests those that still occupy memory are removed.
inter.broker.listener.name | string
  The listener that brokers use among themselves. Without a value security.inter.broker.protocol decides.
listener.security.protocol.map |\
  string SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT | per-broker
  The security protocol of each listener name: NAME:PLAINTEXT, NAME:SSL, NAME:SASL_PLAINTEXT or
  NAME:SASL_SSL, with commas between them.
listeners | string PLAINTEXT://:9092 | per-broker
  The addresses that the broker listens on, name://host:port with commas between them. No host means the
  default interface, 0.0.0.0 all interfaces.
max.connection.creation.rate | int 2147483647 | at least 0 | cluster-wide
  How many connections a second the broker accepts. Others wait.
max.connections | int 2147483647 | at least 0 | cluster-wide
  How many connections the broker holds at a time. If there are more, the one that was idle longest is
  closed, or new ones wait.
max.connections.per.ip | int 2147483647 | at least 0 | cluster-wide
  How many connections one address may hold at a time.
max.connections.per.ip.overrides | string "" | cluster-wide
  Other limits than max.connections.per.ip for some addresses: host:number with commas between them.
max.incremental.fetch.session.cache.slots | int 1000 | at least 0
  How many incremental fetch sessions the broker remembers.
max.request.partition.size.limit | int 2000 | at least 1
  How many partitions one request may describe at most.
num.io.threads | int 8 | at least 1 | cluster-wide
  The number of threads that process requests.
num.network.threads | int 3 | at least 1 | cluster-wide
  The number of threads of each listener that read requests and send answers.
producer.purgatory.purge.interval.requests | int 1000
  After how many finished Produce requests those that still occupy memory are removed.
queued.max.request.bytes | long -1
  How many bytes of requests may wait before no more are read; -1 sets no limit.
queued.max.requests | int 500 | at least 1
  How many requests may wait before no more are read.
quota.window.num | int 11 | at least 1
  How many time windows the quotas of clients are measured over.
quota.window.size.seconds | int 1 | at least 1
  The length of each time window of the quotas of clients, in seconds.
request.timeout.ms | int 30000
  How long the broker waits for an answer to its own requests, in ms.
socket.connection.setup.timeout.max.ms | long 30000
  The longest time that the broker waits until a connection to another broker is open, in ms. The wait
  doubles with each failure up to this value.
socket.connection.setup.timeout.ms | long 10000
  How long the broker first waits until a connection to another broker is open, in ms.
socket.listen.backlog.size | int 50 | at least 1
  How many connections may wait to be accepted.
socket.receive.buffer.bytes | int 102400
  The receive buffer of sockets, SO_RCVBUF; -1 leaves it to the system.
socket.request.max.bytes | int 104857600 | at least 1
  The size of the largest request. A larger one closes its connection.
socket.send.buffer.bytes | int 102400
  The send buffer of sockets, SO_SNDBUF; -1 leaves it to the system.
""")
# Replication and leadership.
_REPLICATION: Final = config_keys("""
alter.log.dirs.replication.quota.window.num | int 11 | at least 1
  How many time windows the quota for moving replicas between directories is measured over.
alter.log.dirs.replication.quota.window.size.seconds | int 1 | at least 1
  The length of each time window of the quota for moving replicas between directories, in seconds.
auto.leader.rebalance.enable | boolean true
  Whether leadership returns to preferred replicas by itself.
leader.imbalance.check.interval.seconds | long 300 | at least 1
  How often the controller looks for leaders that are not preferred replicas, in seconds.
leader.imbalance.per.broker.percentage | int 10
  How many percent of a broker's partitions may be led by others before the controller returns leadership to
  the preferred replicas.
num.replica.alter.log.dirs.threads | int
  The number of threads that move replicas between directories.
num.replica.fetchers | int 1 | cluster-wide
  How many threads copy records from each other broker.
replica.fetch.backoff.ms | int 1000 | at least 0
  How long a follower pauses after a failed fetch, in ms.
replica.fetch.max.bytes | int 1048576 | at least 0
  How many bytes of each partition a follower asks for. A first batch that is larger is sent anyway.
replica.fetch.min.bytes | int 1
  How many bytes a leader collects before it answers a follower, if replica.fetch.wait.max.ms has not
  passed.
replica.fetch.response.max.bytes | int 10485760 | at least 0
  How many bytes one answer to a follower holds at most. A first batch that is larger is sent anyway.
replica.fetch.wait.max.ms | int 500
  How long a leader lets a follower wait for records, in ms. It must be less than replica.lag.time.max.ms.
replica.high.watermark.checkpoint.interval.ms | long 5000
  How often the file replication-offset-checkpoint with the high watermarks is written, in ms.
replica.lag.time.max.ms | long 30000
  After how long without catching up a follower is no longer in sync, in ms.
replica.selector.class | string
  What chooses the replica that a consumer reads from. Without a value it is the leader. With
  org.apache.kafka.common.replica.RackAwareReplicaSelector it is a replica in the consumer's rack
  (client.rack, broker.rack). Other classes are refused.
replica.socket.receive.buffer.bytes | int 65536
  The receive buffer of a follower's sockets, SO_RCVBUF.
replica.socket.timeout.ms | int 30000
  How long a follower waits for an answer, in ms.
replication.quota.window.num | int 11 | at least 1
  How many time windows the quotas of replication are measured over.
replication.quota.window.size.seconds | int 1 | at least 1
  The length of each time window of the quotas of replication, in seconds.
unclean.leader.election.enable | boolean false | cluster-wide
""")
KEYS: Final = (*_CLUSTER, *_GROUPS, *_LOG, *_NETWORK, *_REPLICATION)
