"""The network layer: reads requests from sockets and sends answers, in Kafka's thread roles.

- Each listener has an acceptor and network threads of its own (`served_listener`), so a flood of one listener
  does not hold up another. The acceptor gives connections to the network threads in turn.
- A network thread waits for its connections (epoll), cuts what it reads into frames, has the handler answer
  small requests at once, and sends all answers of one read in one write.
- Further network threads serve the connections that move many bytes (`connection_traffic`), because system
  calls on many bytes run at the same time on several processors.
- The request channel takes connections to the I/O threads whose work would hold up a network thread: a large
  frame to read, a request that may block, a slice of a file that has to be read from a disk. An I/O thread
  has the connection to itself, and keeps it while large frames follow each other.
- An answer that comes later, from any thread, is sent by the network thread that owns the connection.

One request of a connection is handled at a time, and answers are in order. While a request is handled the
connection is not read: nothing is queued for a client beyond what one read brought, so a client that sends
too much is slowed down by TCP.

A connection has phases (`phases`): TLS handshake, authentication, open. Deadlines (`deadlines`) mute a
connection for some time without a thread that waits.

Rules: Kafka's SocketServer and RequestChannel for the roles and settings; the protocol guide, "Network",
for frames.
"""

from klog.server.network.dispatch import work_on
from klog.server.network.handler import Handler
from klog.server.network.request import Request
from klog.server.network.settings import Listener, ListenerLimits, NetworkSettings
from klog.server.network.socket_server import BindError, SocketServer

__all__ = [
    "BindError",
    "Handler",
    "Listener",
    "ListenerLimits",
    "NetworkSettings",
    "Request",
    "SocketServer",
    "work_on",
]
