"""Network: sockets to requests and back, in Kafka's thread roles with as few hand-offs as possible.

- an acceptor takes connections and deals them to the network threads in turn;
- a network thread waits for its connections (epoll), cuts what it reads into frames, lets the handler
  answer small requests on the spot, and sends all answers of one read in one write;
- the request channel carries what would hold the network thread up (a large frame that is still to be read,
  a request that may block) to the I/O threads. An I/O thread has the connection to itself and keeps it
  while large frames follow each other;
- an answer that comes later, from any thread, goes back through the network thread that owns the connection.

One request of a connection is worked on at a time, and answers are in order. A connection that is not being
read is the back pressure: nothing is queued for a client beyond what one read brought.

Rules: Kafka's SocketServer and RequestChannel for the roles and settings; the protocol guide, "Network",
for frames.
"""

from klog.server.network.dispatch import work_on
from klog.server.network.request import Handler, Request
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
