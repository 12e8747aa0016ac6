"""One listener at work: its acceptor, and the network threads that serve its connections and no others.

So a connection waits in the loop of a thread for connections of its own listener only.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from klog.server.network.acceptor import Acceptor
from klog.server.network.network_thread import NetworkThread
from klog.server.network.precedence import Turns
from klog.server.network.settings import Listener, NetworkSettings

NetworkFor = Callable[[bool], NetworkThread | None]
NewNetwork = Callable[[NetworkFor, bool], NetworkThread]


class ServedListener:
    """Serves a listener from `start` to `close`, or until the server stops. It owns its acceptor.

    `new_network` makes a network thread, for bulk traffic if it is True. It gets a function that names a
    thread of this listener of either kind.
    """

    def __init__(
        self,
        settings: NetworkSettings,
        listener: Listener,
        sock: socket.socket,
        acceptor: Acceptor,
        new_network: NewNetwork,
    ) -> None:
        self.listener = listener
        self.socket = sock
        self._acceptor = acceptor
        self._new_network = new_network
        self._stop_timeout_s = settings.stop_timeout_ms / 1000
        # Threads that are ending get no new connections, and are in neither list.
        self._networks: list[NetworkThread] = []
        self._bulk_networks: list[NetworkThread] = []
        with ExitStack() as undoing:
            undoing.callback(acceptor.stop)
            undoing.callback(self.release)
            for _ in range(settings.network_threads_of(listener.name)):
                self._networks.append(new_network(self._network_for, False))
            for _ in range(settings.bulk_threads):
                self._bulk_networks.append(new_network(self._network_for, True))
            undoing.pop_all()

    def _network_for(self, bulk: bool) -> NetworkThread | None:
        """The network thread of a kind that has the fewest connections; None if there is none."""
        networks = tuple(self._bulk_networks if bulk else self._networks)
        return min(networks, key=lambda each: each.connection_count, default=None)

    @property
    def turns(self) -> Iterator[Turns]:
        """The turns of the threads that go first (`precedence`)."""
        return (network.turns for network in self._all() if network.turns is not None)

    def _all(self) -> tuple[NetworkThread, ...]:
        return *self._networks, *self._bulk_networks

    @property
    def thread_counts(self) -> tuple[int, int]:
        """How many network threads there are as the settings ask for, and how many for bulk traffic."""
        return len(self._networks), len(self._bulk_networks)

    def start(self) -> None:
        """Begins to accept and to serve. Raises RuntimeError if the system has no threads left."""
        for network in self._all():
            network.start()
        self._acceptor.start(self._networks)

    def connection_closed(self) -> None:
        """Called after a connection of any listener was closed: another one may be accepted."""
        self._acceptor.connection_closed()

    # Changing.

    def add_threads(self, wanted: int, undoing: ExitStack) -> None:
        """Starts the network threads that are missing from those `wanted`. Raises OSError, RuntimeError if
        the system has none left.
        """
        for _ in range(wanted - len(self._networks)):
            network = self._new_network(self._network_for, False)
            network.start()
            self._networks.append(network)
            undoing.callback(self._retire_last)

    def change(self, listener: Listener, sock: socket.socket, wanted: int) -> None:
        """Goes on with this listener and its socket, and ends the network threads beyond those `wanted`.
        Another socket than before is closed.
        """
        self._acceptor.change(listener, sock, self._networks[:wanted])
        self.listener, self.socket = listener, sock
        while len(self._networks) > wanted:
            self._retire_last()

    def _retire_last(self) -> None:
        self._networks.pop().retire(time.monotonic() + self._stop_timeout_s)

    def close(self) -> None:
        """Stops accepting, closes all connections and ends the threads, for which it does not wait."""
        self._acceptor.stop()
        for network in self._all():
            network.disconnect_all()
            network.retire(time.monotonic() + self._stop_timeout_s)
            if not network.alive:
                network.release()

    # Stopping with the server.

    def stop_accepting(self) -> None:
        """Closes the listening socket."""
        self._acceptor.stop()

    def drain(self, until_s: float) -> None:
        """Has the threads answer what is being handled, until `until_s` of the monotonic clock at most."""
        for network in self._all():
            network.drain(until_s)

    def release(self) -> None:
        """Closes what is left after the threads have ended."""
        for network in self._all():
            network.release()
