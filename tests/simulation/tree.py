"""Sessions on the tree in memory that end if their broker is not heard from, as ZooKeeper's do.

A broker that is cut off gets ConnectionLossError and no watches. When its session has ended at the server, it
hears that only when it reaches the server again; then a new session begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from klog.metadata.errors import ConnectionLossError, SessionExpiredError, StoreError
from klog.metadata.local import SharedTree
from klog.metadata.store import MultiResult, Operation, SessionState
from klog.metadata.tree import NodeTree
from klog.metadata.watches import Delivery
from tests.metadata.memory_tree import MemorySession
from tests.simulation.scheduler import US_PER_MS, Process, Scheduler

SESSION_TIMEOUT_MS = 1_500
TREE = "tree"


class SimulatedSession(MemorySession):
    """One broker's session. `delay_us` draws how long a watch takes.

    `loses` draws whether the answer of a write is lost: before the write (-1), after it (1), or not (0).
    """

    def __init__(
        self,
        shared: SharedTree,
        scheduler: Scheduler,
        server: Process,
        process: Process,
        delay_us: Callable[[], int],
        loses: Callable[[], int],
    ) -> None:
        self._scheduler = scheduler
        self._server = server
        self._process = process
        self._delay_us = delay_us
        self._loses = loses
        self._arriving: deque[Delivery] = deque()
        self.connected = True
        self.ended = False  # at the server
        self._lost_since = 0
        self.on_connected: Callable[[], None] = lambda: None
        super().__init__(shared, self._deliver)

    @contextmanager
    def _tree(self) -> Iterator[NodeTree]:
        if self.ended:
            raise SessionExpiredError("the session has expired")
        if not self.connected:
            raise ConnectionLossError("not connected")
        with super()._tree() as tree:
            yield tree

    def multi_many(self, multis: Sequence[Sequence[Operation]]) -> list[MultiResult | StoreError]:
        fate = self._loses()
        lost: list[MultiResult | StoreError] = [ConnectionLossError("lost") for _ in multis]
        if fate < 0:
            return lost
        outcomes = super().multi_many(multis)
        return lost if fate > 0 else outcomes

    def _deliver(self, deliveries: Iterable[Delivery]) -> None:
        for each in deliveries:
            self._arriving.append(each)
            if self.connected:
                self._scheduler.after(self._delay_us(), self._process, self._arrive)

    def _arrive(self) -> None:
        # In the order in which they were fired, whichever call is the first.
        if self.connected and self._arriving:
            self._arriving.popleft()()

    # -- the connection --------------------------------------------------------------------------------------

    def disconnect(self) -> None:
        """The broker does not reach the server any more."""
        if self.connected:
            self.connected = False
            self.fall_silent()

    def fall_silent(self) -> None:
        """The server hears nothing more from the broker: the session ends after its timeout."""
        self._lost_since += 1
        lost_since = self._lost_since

        def expire() -> None:
            if self._lost_since == lost_since:
                self.end()

        self._scheduler.after(SESSION_TIMEOUT_MS * US_PER_MS, self._server, expire)

    def end(self) -> None:
        """The session ends at the server."""
        if not self.ended:
            self.ended = True
            self.watches.clear()
            self._arriving.clear()
            self._shared.close_session(self._session_id)

    def reconnect(self) -> None:
        """The broker reaches the server again, and hears whether its session has ended."""
        self._lost_since += 1
        if self.connected and not self.ended:
            return
        self.connected = True
        if self.ended:
            self._listen(SessionState.EXPIRED)
            self._scheduler.after(self._delay_us(), self._process, self._begin)
        else:
            for _ in range(len(self._arriving)):
                self._scheduler.after(self._delay_us(), self._process, self._arrive)
            self.on_connected()

    def _begin(self) -> None:
        if self.ended and self.connected:
            self.ended = False
            self._session_id = self._shared.open_session(self)
            self._listen(SessionState.CONNECTED)
            self.on_connected()

    def _listen(self, state: SessionState) -> None:
        for listener in self._listeners:
            partial(listener, state)()
