"""What each broker config about KRaft, tiered storage, share groups and metrics reporters does."""

from __future__ import annotations

from typing import Final

TEXT: Final = """
auto.include.jmx.reporter: Whether the JMX reporter runs though metric.reporters does not name it. Deprecated.
broker.heartbeat.interval.ms: In KRaft mode: how often a broker sends a heartbeat to the controller, in ms.
broker.session.timeout.ms: In KRaft mode: after how long without a heartbeat a broker is fenced, in ms.
controller.listener.names: In KRaft mode: the listeners of the controllers.
controller.quorum.append.linger.ms: In KRaft mode: how long the leader of the quorum collects records before
  it writes them, in ms.
controller.quorum.bootstrap.servers: In KRaft mode: controllers at which a node asks for the others.
controller.quorum.election.backoff.max.ms: In KRaft mode: the longest pause before a new election, in ms.
controller.quorum.election.timeout.ms: In KRaft mode: how long a candidate waits for votes, in ms.
controller.quorum.fetch.timeout.ms: In KRaft mode: after how long without fetches from a majority, or from the
  leader, a new election begins, in ms.
controller.quorum.request.timeout.ms: In KRaft mode: how long a node of the quorum waits for an answer, in ms.
controller.quorum.retry.backoff.ms: In KRaft mode: the pause before a request to the quorum is sent again, in
  ms.
controller.quorum.voters: In KRaft mode: the voters of the quorum, id@host:port with commas between them.
early.start.listeners: Listeners that accept connections before the authorizer is ready.
eligible.leader.replicas.enable: Whether the controller tracks replicas that may lead though they are not in
  sync (KIP-966).
group.share.delivery.count.limit: How often a record is delivered to a share group at most.
group.share.enable: Whether share groups are enabled (KIP-932).
group.share.heartbeat.interval.ms: How often members of share groups send a heartbeat, in ms.
group.share.max.groups: How many share groups there may be.
group.share.max.heartbeat.interval.ms: The longest heartbeat interval that a share group may set, in ms.
group.share.max.record.lock.duration.ms: The longest time for which a record may be locked by a member, in ms.
group.share.max.session.timeout.ms: The longest session timeout that a share group may set, in ms.
group.share.max.size: How many members a share group may have.
group.share.min.heartbeat.interval.ms: The shortest heartbeat interval that a share group may set, in ms.
group.share.min.record.lock.duration.ms: The shortest time for which a record may be locked by a member, in
  ms.
group.share.min.session.timeout.ms: The shortest session timeout that a share group may set, in ms.
group.share.partition.max.record.locks: How many records of a partition may be locked at a time.
group.share.record.lock.duration.ms: For how long a record is locked by the member that got it, in ms.
group.share.session.timeout.ms: After how long without a heartbeat a member of a share group is removed, in
  ms.
initial.broker.registration.timeout.ms: In KRaft mode: how long a broker tries to register before it ends, in
  ms.
kafka.metrics.polling.interval.secs: How often the reporters of kafka.metrics.reporters report, in seconds.
kafka.metrics.reporters: Java classes that report metrics of the older kind (Yammer).
log.dir.failure.timeout.ms: In KRaft mode: how long a broker tries to tell the controller about a failed
  directory before it ends, in ms.
metadata.log.dir: In KRaft mode: the directory of the metadata log. Without a value it is the first of
  log.dirs.
metadata.log.max.record.bytes.between.snapshots: In KRaft mode: after how many bytes of records a snapshot of
  the metadata is made.
metadata.log.max.snapshot.interval.ms: In KRaft mode: after how long a snapshot of the metadata is made if
  there are new records, in ms.
metadata.log.segment.bytes: In KRaft mode: the size at which a segment of the metadata log is closed.
metadata.log.segment.min.bytes: The smallest metadata.log.segment.bytes that is accepted. For tests.
metadata.log.segment.ms: In KRaft mode: the age at which a segment of the metadata log is closed, in ms.
metadata.max.idle.interval.ms: In KRaft mode: after how long without records the controller writes one that
  means nothing, in ms; 0 means never.
metadata.max.retention.bytes: In KRaft mode: how large metadata log and snapshots may become before the oldest
  go.
metadata.max.retention.ms: In KRaft mode: how long segments and snapshots of the metadata are kept, in ms.
metric.reporters: Java classes that report metrics.
metrics.num.samples: How many samples a metric is computed from.
metrics.recording.level: The level from which on metrics are recorded: INFO, DEBUG or TRACE.
metrics.sample.window.ms: The length of time that a sample of a metric covers, in ms.
node.id: The number of this node. It is broker.id by another name.
process.roles: In KRaft mode: broker, controller or both. Empty means a broker with ZooKeeper.
remote.fetch.max.wait.ms: With tiered storage: how long a Fetch waits for remote records, in ms.
remote.log.index.file.cache.total.size.bytes: With tiered storage: the size of the cache of remote indexes.
remote.log.manager.copier.thread.pool.size: With tiered storage: the number of threads that copy segments to
  remote storage. -1 means remote.log.manager.thread.pool.size.
remote.log.manager.copy.max.bytes.per.second: With tiered storage: how many bytes a second the broker copies
  to remote storage.
remote.log.manager.copy.quota.window.num: With tiered storage: how many time windows the copying quota is
  measured over.
remote.log.manager.copy.quota.window.size.seconds: With tiered storage: the length of each time window of the
  copying quota, in seconds.
remote.log.manager.expiration.thread.pool.size: With tiered storage: the number of threads that remove expired
  remote segments. -1 means remote.log.manager.thread.pool.size.
remote.log.manager.fetch.max.bytes.per.second: With tiered storage: how many bytes a second the broker reads
  from remote storage.
remote.log.manager.fetch.quota.window.num: With tiered storage: how many time windows the reading quota is
  measured over.
remote.log.manager.fetch.quota.window.size.seconds: With tiered storage: the length of each time window of the
  reading quota, in seconds.
remote.log.manager.task.interval.ms: With tiered storage: how often segments are copied and removed, in ms.
remote.log.manager.task.retry.backoff.max.ms: With tiered storage: the longest pause after a failure, in ms.
remote.log.manager.task.retry.backoff.ms: With tiered storage: the first pause after a failure, in ms.
remote.log.manager.task.retry.jitter: With tiered storage: how much of a pause after a failure is random.
remote.log.manager.thread.pool.size: With tiered storage: the number of threads that copy and remove segments.
remote.log.metadata.custom.metadata.max.bytes: With tiered storage: the size of the largest metadata that a
  storage plugin may keep for a segment.
remote.log.metadata.manager.class.name: With tiered storage: the Java class that keeps the list of remote
  segments.
remote.log.metadata.manager.class.path: With tiered storage: where the class that keeps the list of remote
  segments is found.
remote.log.metadata.manager.impl.prefix: With tiered storage: the prefix of configs that go to the class that
  keeps the list of remote segments.
remote.log.metadata.manager.listener.name: With tiered storage: the listener through which the list of remote
  segments is read and written.
remote.log.reader.max.pending.tasks: With tiered storage: how many remote reads may wait. More are refused.
remote.log.reader.threads: With tiered storage: the number of threads that read from remote storage.
remote.log.storage.manager.class.name: With tiered storage: the Java class that reads and writes remote
  segments.
remote.log.storage.manager.class.path: With tiered storage: where the class that reads and writes remote
  segments is found.
remote.log.storage.manager.impl.prefix: With tiered storage: the prefix of configs that go to the class that
  reads and writes remote segments.
remote.log.storage.system.enable: Whether the broker has tiered storage at all.
server.max.startup.time.ms: How long the start may take before the process ends, in ms.
telemetry.max.bytes: The size of the largest metrics that a client may push, in bytes (KIP-714).
unclean.leader.election.interval.ms: In KRaft mode: how often the controller looks for partitions that need an
  unclean election, in ms.
unstable.api.versions.enable: Whether versions of requests that are still in development are served.
unstable.feature.versions.enable: Whether versions of features that are still in development are allowed.
zookeeper.metadata.migration.enable: Whether the cluster's metadata moves from ZooKeeper to KRaft.
zookeeper.metadata.migration.min.batch.size: How many records a batch of the move from ZooKeeper to KRaft has
  at least.
"""
