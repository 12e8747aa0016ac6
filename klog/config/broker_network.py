"""Broker configs of listeners, connections, requests and client quotas.

Names, types, defaults and limits of Kafka 3.9, in alphabetical order.
"""

from __future__ import annotations

from typing import Final

from klog.config.key_table import config_keys

KEYS: Final = config_keys("""
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
