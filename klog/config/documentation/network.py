"""What each broker config about listeners, connections, requests and quotas does."""

from __future__ import annotations

from typing import Final

TEXT: Final = """
advertised.listeners: The addresses that clients are told to connect to, name://host:port with commas between
  them. Without a value they are those of listeners. Needed behind NAT, in containers and in clouds.
background.threads: The number of threads for background tasks.
connections.max.idle.ms: After how long without traffic a connection is closed, in ms.
control.plane.listener.name: The listener for the requests of the controller. Without a value they arrive on
  the same listener as all others.
controller.quota.window.num: How many time windows the quota of controller mutations is measured over.
controller.quota.window.size.seconds: The length of each time window of the quota of controller mutations, in
  seconds.
fetch.max.bytes: How many bytes one Fetch answer holds at most. A first batch that is larger is sent anyway.
fetch.purgatory.purge.interval.requests: After how many finished Fetch requests those that still occupy memory
  are removed.
inter.broker.listener.name: The listener that brokers use among themselves. Without a value
  security.inter.broker.protocol decides.
listener.security.protocol.map: The security protocol of each listener name: NAME:PLAINTEXT, NAME:SSL,
  NAME:SASL_PLAINTEXT or NAME:SASL_SSL, with commas between them.
listeners: The addresses that the broker listens on, name://host:port with commas between them. No host means
  the default interface, 0.0.0.0 all interfaces.
max.connection.creation.rate: How many connections a second the broker accepts. Others wait.
max.connections: How many connections the broker holds at a time. If there are more, the one that was idle
  longest is closed, or new ones wait.
max.connections.per.ip: How many connections one address may hold at a time.
max.connections.per.ip.overrides: Other limits than max.connections.per.ip for some addresses: host:number
  with commas between them.
max.incremental.fetch.session.cache.slots: How many incremental fetch sessions the broker remembers.
max.request.partition.size.limit: How many partitions one request may describe at most.
num.io.threads: The number of threads that process requests.
num.network.threads: The number of threads of each listener that read requests and send answers.
producer.purgatory.purge.interval.requests: After how many finished Produce requests those that still occupy
  memory are removed.
queued.max.request.bytes: How many bytes of requests may wait before no more are read; -1 sets no limit.
queued.max.requests: How many requests may wait before no more are read.
quota.window.num: How many time windows the quotas of clients are measured over.
quota.window.size.seconds: The length of each time window of the quotas of clients, in seconds.
request.timeout.ms: How long the broker waits for an answer to its own requests, in ms.
socket.connection.setup.timeout.max.ms: The longest time that the broker waits until a connection to another
  broker is open, in ms. The wait doubles with each failure up to this value.
socket.connection.setup.timeout.ms: How long the broker first waits until a connection to another broker is
  open, in ms.
socket.listen.backlog.size: How many connections may wait to be accepted.
socket.receive.buffer.bytes: The receive buffer of sockets, SO_RCVBUF; -1 leaves it to the system.
socket.request.max.bytes: The size of the largest request. A larger one closes its connection.
socket.send.buffer.bytes: The send buffer of sockets, SO_SNDBUF; -1 leaves it to the system.
"""
