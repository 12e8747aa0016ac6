"""Broker configs of identity, ZooKeeper, topics and the controller.

Names, types, defaults and limits of Kafka 3.9, in alphabetical order.
"""

from __future__ import annotations

from typing import Final

from klog.config.key_table import config_keys

KEYS: Final = config_keys("""
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
