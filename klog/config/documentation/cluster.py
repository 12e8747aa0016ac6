"""What each broker config about the cluster, its topics and ZooKeeper does."""

from __future__ import annotations

from typing import Final

TEXT: Final = """
alter.config.policy.class.name: A Java class that decides whether a change of configs is allowed.
auto.create.topics.enable: Whether a topic is created when a client first asks for it.
broker.id: The number of this broker, different for each broker of the cluster. -1 lets the broker choose one
  above reserved.broker.max.id and keep it.
broker.id.generation.enable: Whether a broker with broker.id=-1 may choose a number. If false, it does not
  start without one.
broker.rack: The rack or zone of this broker. Replicas of new partitions are spread over racks.
controlled.shutdown.enable: Whether the broker hands its partitions to other brokers before it stops.
controlled.shutdown.max.retries: How often a controlled shutdown is tried before the broker stops anyway.
controlled.shutdown.retry.backoff.ms: The pause between attempts of a controlled shutdown, in ms.
controller.socket.timeout.ms: How long the controller waits for an answer of another broker, in ms.
create.topic.policy.class.name: A Java class that decides whether a topic may be created.
default.replication.factor: The number of replicas of topics that are created without one, automatically
  created ones included.
delete.topic.enable: Whether topics can be deleted. If false, requests to delete topics are refused.
inter.broker.protocol.version: The version of the protocol between brokers. It is raised after all brokers of
  a cluster were upgraded.
num.partitions: The number of partitions of topics that are created without one.
reserved.broker.max.id: The largest number that may be given as broker.id. Generated ids are above it.
zookeeper.clientCnxnSocket: A Java class for ZooKeeper connections; TLS needs
  org.apache.zookeeper.ClientCnxnSocketNetty.
zookeeper.connect: The ZooKeeper servers, host:port with commas between them, and behind the last one the path
  under which the cluster keeps its data, such as zk1:2181,zk2:2181/kafka.
zookeeper.connection.timeout.ms: How long the broker tries to connect to ZooKeeper, in ms. Without a value it
  is zookeeper.session.timeout.ms.
zookeeper.max.in.flight.requests: How many requests to ZooKeeper may wait for answers at a time.
zookeeper.session.timeout.ms: After how long without a sign of life ZooKeeper ends the broker's session, in
  ms. The cluster then takes the broker for dead.
zookeeper.set.acl: Whether znodes are created so that only the broker's own user may change them.
"""
