"""Broker configs of replication and leadership.

Names, types, defaults and limits of Kafka 3.9, in alphabetical order.
"""

from __future__ import annotations

from typing import Final

from klog.config.key_table import config_keys

KEYS: Final = config_keys("""
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
