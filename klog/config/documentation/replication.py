"""What each broker config about replication and leaders does."""

from __future__ import annotations

from typing import Final

TEXT: Final = """
alter.log.dirs.replication.quota.window.num: How many time windows the quota for moving replicas between
  directories is measured over.
alter.log.dirs.replication.quota.window.size.seconds: The length of each time window of the quota for moving
  replicas between directories, in seconds.
auto.leader.rebalance.enable: Whether leadership returns to preferred replicas by itself.
leader.imbalance.check.interval.seconds: How often the controller looks for leaders that are not preferred
  replicas, in seconds.
leader.imbalance.per.broker.percentage: How many percent of a broker's partitions may be led by others before
  the controller returns leadership to the preferred replicas.
num.replica.alter.log.dirs.threads: The number of threads that move replicas between directories.
num.replica.fetchers: How many threads copy records from each other broker.
replica.fetch.backoff.ms: How long a follower pauses after a failed fetch, in ms.
replica.fetch.max.bytes: How many bytes of each partition a follower asks for. A first batch that is larger is
  sent anyway.
replica.fetch.min.bytes: How many bytes a leader collects before it answers a follower, if
  replica.fetch.wait.max.ms has not passed.
replica.fetch.response.max.bytes: How many bytes one answer to a follower holds at most. A first batch that is
  larger is sent anyway.
replica.fetch.wait.max.ms: How long a leader lets a follower wait for records, in ms. It must be less than
  replica.lag.time.max.ms.
replica.high.watermark.checkpoint.interval.ms: How often the file replication-offset-checkpoint with the high
  watermarks is written, in ms.
replica.lag.time.max.ms: After how long without catching up a follower is no longer in sync, in ms.
replica.selector.class: What chooses the replica that a consumer reads from. Without a value it is the leader.
  With org.apache.kafka.common.replica.RackAwareReplicaSelector it is a replica in the consumer's rack
  (client.rack, broker.rack). Other classes are refused.
replica.socket.receive.buffer.bytes: The receive buffer of a follower's sockets, SO_RCVBUF.
replica.socket.timeout.ms: How long a follower waits for an answer, in ms.
replication.quota.window.num: How many time windows the quotas of replication are measured over.
replication.quota.window.size.seconds: The length of each time window of the quotas of replication, in
  seconds.
"""
