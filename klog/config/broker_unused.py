"""Broker configs that Kafka knows and a broker with ZooKeeper does not use (KRaft, tiered storage, share
groups).

Names, types, defaults and limits of Kafka 3.9, in alphabetical order.
"""

from __future__ import annotations

from typing import Final

from klog.config.key_table import config_keys

KEYS: Final = config_keys("""
auto.include.jmx.reporter | boolean true
  Whether the JMX reporter runs though metric.reporters does not name it. Deprecated.
broker.heartbeat.interval.ms | int 2000
  In KRaft mode: how often a broker sends a heartbeat to the controller, in ms.
broker.session.timeout.ms | int 9000
  In KRaft mode: after how long without a heartbeat a broker is fenced, in ms.
controller.listener.names | string
  In KRaft mode: the listeners of the controllers.
controller.quorum.append.linger.ms | int 25
  In KRaft mode: how long the leader of the quorum collects records before it writes them, in ms.
controller.quorum.bootstrap.servers | list ""
  In KRaft mode: controllers at which a node asks for the others.
controller.quorum.election.backoff.max.ms | int 1000
  In KRaft mode: the longest pause before a new election, in ms.
controller.quorum.election.timeout.ms | int 1000
  In KRaft mode: how long a candidate waits for votes, in ms.
controller.quorum.fetch.timeout.ms | int 2000
  In KRaft mode: after how long without fetches from a majority, or from the leader, a new election begins,
  in ms.
controller.quorum.request.timeout.ms | int 2000
  In KRaft mode: how long a node of the quorum waits for an answer, in ms.
controller.quorum.retry.backoff.ms | int 20
  In KRaft mode: the pause before a request to the quorum is sent again, in ms.
controller.quorum.voters | list ""
  In KRaft mode: the voters of the quorum, id@host:port with commas between them.
early.start.listeners | string
  Listeners that accept connections before the authorizer is ready.
eligible.leader.replicas.enable | boolean false
  Whether the controller tracks replicas that may lead though they are not in sync (KIP-966).
group.share.delivery.count.limit | int 5 | 2 to 10
  How often a record is delivered to a share group at most.
group.share.enable | boolean false | internal
  Whether share groups are enabled (KIP-932).
group.share.heartbeat.interval.ms | int 5000 | at least 1
  How often members of share groups send a heartbeat, in ms.
group.share.max.groups | short 10 | 1 to 100
  How many share groups there may be.
group.share.max.heartbeat.interval.ms | int 15000 | at least 1
  The longest heartbeat interval that a share group may set, in ms.
group.share.max.record.lock.duration.ms | int 60000 | 30000 to 3600000
  The longest time for which a record may be locked by a member, in ms.
group.share.max.session.timeout.ms | int 60000 | at least 1
  The longest session timeout that a share group may set, in ms.
group.share.max.size | short 200 | 10 to 1000
  How many members a share group may have.
group.share.min.heartbeat.interval.ms | int 5000 | at least 1
  The shortest heartbeat interval that a share group may set, in ms.
group.share.min.record.lock.duration.ms | int 15000 | 1000 to 30000
  The shortest time for which a record may be locked by a member, in ms.
group.share.min.session.timeout.ms | int 45000 | at least 1
  The shortest session timeout that a share group may set, in ms.
group.share.partition.max.record.locks | int 200 | 100 to 10000
  How many records of a partition may be locked at a time.
group.share.record.lock.duration.ms | int 30000 | 1000 to 60000
  For how long a record is locked by the member that got it, in ms.
group.share.session.timeout.ms | int 45000 | at least 1
  After how long without a heartbeat a member of a share group is removed, in ms.
initial.broker.registration.timeout.ms | int 60000
  In KRaft mode: how long a broker tries to register before it ends, in ms.
kafka.metrics.polling.interval.secs | int 10 | at least 1
  How often the reporters of kafka.metrics.reporters report, in seconds.
kafka.metrics.reporters | list ""
  Java classes that report metrics of the older kind (Yammer).
log.dir.failure.timeout.ms | long 30000 | at least 1
  In KRaft mode: how long a broker tries to tell the controller about a failed directory before it ends, in
  ms.
log.local.retention.bytes | long -2 | at least -2 | cluster-wide
log.local.retention.ms | long -2 | at least -2 | cluster-wide
metadata.log.dir | string
  In KRaft mode: the directory of the metadata log. Without a value it is the first of log.dirs.
metadata.log.max.record.bytes.between.snapshots | long 20971520 | at least 1
  In KRaft mode: after how many bytes of records a snapshot of the metadata is made.
metadata.log.max.snapshot.interval.ms | long 3600000 | at least 0
  In KRaft mode: after how long a snapshot of the metadata is made if there are new records, in ms.
metadata.log.segment.bytes | int 1073741824 | at least 12
  In KRaft mode: the size at which a segment of the metadata log is closed.
metadata.log.segment.min.bytes | int 8388608 | at least 12 | internal
  The smallest metadata.log.segment.bytes that is accepted. For tests.
metadata.log.segment.ms | long 604800000
  In KRaft mode: the age at which a segment of the metadata log is closed, in ms.
metadata.max.idle.interval.ms | int 500 | at least 0
  In KRaft mode: after how long without records the controller writes one that means nothing, in ms; 0 means
  never.
metadata.max.retention.bytes | long 104857600
  In KRaft mode: how large metadata log and snapshots may become before the oldest go.
metadata.max.retention.ms | long 604800000
  In KRaft mode: how long segments and snapshots of the metadata are kept, in ms.
metric.reporters | list "" | cluster-wide
  Java classes that report metrics.
metrics.num.samples | int 2 | at least 1
  How many samples a metric is computed from.
metrics.recording.level | string INFO
  The level from which on metrics are recorded: INFO, DEBUG or TRACE.
metrics.sample.window.ms | long 30000 | at least 1
  The length of time that a sample of a metric covers, in ms.
node.id | int -1
  The number of this node. It is broker.id by another name.
process.roles | list "" | all of broker, controller
  In KRaft mode: broker, controller or both. Empty means a broker with ZooKeeper.
remote.fetch.max.wait.ms | int 500 | at least 1 | cluster-wide
  With tiered storage: how long a Fetch waits for remote records, in ms.
remote.log.index.file.cache.total.size.bytes | long 1073741824 | at least 1 | cluster-wide
  With tiered storage: the size of the cache of remote indexes.
remote.log.manager.copier.thread.pool.size | int -1 | thread count
  With tiered storage: the number of threads that copy segments to remote storage. -1 means
  remote.log.manager.thread.pool.size.
remote.log.manager.copy.max.bytes.per.second | long 9223372036854775807 | at least 1 | cluster-wide
  With tiered storage: how many bytes a second the broker copies to remote storage.
remote.log.manager.copy.quota.window.num | int 11 | at least 1
  With tiered storage: how many time windows the copying quota is measured over.
remote.log.manager.copy.quota.window.size.seconds | int 1 | at least 1
  With tiered storage: the length of each time window of the copying quota, in seconds.
remote.log.manager.expiration.thread.pool.size | int -1 | thread count
  With tiered storage: the number of threads that remove expired remote segments. -1 means
  remote.log.manager.thread.pool.size.
remote.log.manager.fetch.max.bytes.per.second | long 9223372036854775807 | at least 1 | cluster-wide
  With tiered storage: how many bytes a second the broker reads from remote storage.
remote.log.manager.fetch.quota.window.num | int 11 | at least 1
  With tiered storage: how many time windows the reading quota is measured over.
remote.log.manager.fetch.quota.window.size.seconds | int 1 | at least 1
  With tiered storage: the length of each time window of the reading quota, in seconds.
remote.log.manager.task.interval.ms | long 30000 | at least 1
  With tiered storage: how often segments are copied and removed, in ms.
remote.log.manager.task.retry.backoff.max.ms | long 30000 | at least 1 | internal
  With tiered storage: the longest pause after a failure, in ms.
remote.log.manager.task.retry.backoff.ms | long 500 | at least 1 | internal
  With tiered storage: the first pause after a failure, in ms.
remote.log.manager.task.retry.jitter | double 0.2 | 0 to 0.5 | internal
  With tiered storage: how much of a pause after a failure is random.
remote.log.manager.thread.pool.size | int 10 | at least 1
  With tiered storage: the number of threads that copy and remove segments.
remote.log.metadata.custom.metadata.max.bytes | int 128 | at least 0
  With tiered storage: the size of the largest metadata that a storage plugin may keep for a segment.
remote.log.metadata.manager.class.name |\
  string org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager | not empty
  With tiered storage: the Java class that keeps the list of remote segments.
remote.log.metadata.manager.class.path | string
  With tiered storage: where the class that keeps the list of remote segments is found.
remote.log.metadata.manager.impl.prefix | string rlmm.config. | not empty
  With tiered storage: the prefix of configs that go to the class that keeps the list of remote segments.
remote.log.metadata.manager.listener.name | string | not empty
  With tiered storage: the listener through which the list of remote segments is read and written.
remote.log.reader.max.pending.tasks | int 100 | at least 1
  With tiered storage: how many remote reads may wait. More are refused.
remote.log.reader.threads | int 10 | at least 1
  With tiered storage: the number of threads that read from remote storage.
remote.log.storage.manager.class.name | string | not empty
  With tiered storage: the Java class that reads and writes remote segments.
remote.log.storage.manager.class.path | string
  With tiered storage: where the class that reads and writes remote segments is found.
remote.log.storage.manager.impl.prefix | string rsm.config. | not empty
  With tiered storage: the prefix of configs that go to the class that reads and writes remote segments.
remote.log.storage.system.enable | boolean false
  Whether the broker has tiered storage at all.
server.max.startup.time.ms | long 9223372036854775807 | at least 0 | internal
  How long the start may take before the process ends, in ms.
telemetry.max.bytes | int 1048576 | at least 1
  The size of the largest metrics that a client may push, in bytes (KIP-714).
unclean.leader.election.interval.ms | long 300000 | at least 1 | internal
  In KRaft mode: how often the controller looks for partitions that need an unclean election, in ms.
unstable.api.versions.enable | boolean false | internal
  Whether versions of requests that are still in development are served.
unstable.feature.versions.enable | boolean false | internal
  Whether versions of features that are still in development are allowed.
zookeeper.metadata.migration.enable | boolean false
  Whether the cluster's metadata moves from ZooKeeper to KRaft.
zookeeper.metadata.migration.min.batch.size | int 200 | at least 1 | internal
  How many records a batch of the move from ZooKeeper to KRaft has at least.
""")
