"""The controller without its thread: takes part in elections and hands events to the active controller.

It is deterministic. `Controller` in `runner` adds a thread, a queue and timers; simulated clusters call
`handle` themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from klog.controller.active_controller import ActiveController
from klog.controller.broker_request_queue import BrokerRequestQueue
from klog.controller.events import (
    Event,
    SessionExpired,
    SessionRenewed,
    Startup,
    TreeChanged,
    WatchedNode,
    answered_once,
    preempt,
)
from klog.controller.observer import ControllerObserver
from klog.controller.settings import ControllerSettings
from klog.formats.errors import KlogError
from klog.metadata.election import elect, read_controller, resign_as_controller
from klog.metadata.errors import ControllerMovedError, SessionExpiredError
from klog.metadata.store import MetadataStore, WatchEvent

_log = logging.getLogger(__name__)

NO_CONTROLLER = -1


@dataclass(slots=True, eq=False)
class ControllerCore:
    """One broker's controller, active or not.

    `reregister` registers the broker again after its session has expired. `enqueue` queues an event for
    `handle`, which one thread calls.
    """

    settings: Callable[[], ControllerSettings]
    store: MetadataStore
    request_queue: BrokerRequestQueue
    enqueue: Callable[[Event], None]
    reregister: Callable[[], None]
    now_ms: Callable[[], int]
    observer: ControllerObserver
    active: ActiveController | None = field(default=None, init=False)
    active_controller_id: int = field(default=NO_CONTROLLER, init=False)
    # How many times in a row this controller has failed on the tree or on its contents.
    failures: int = field(default=0, init=False)
    # The session of the store in which the broker is registered.
    _member_session: int | None = field(default=None, init=False)

    @property
    def is_active(self) -> bool:
        return self.active is not None

    def handle(self, event: Event) -> None:
        """Handles one event completely."""
        match event:
            case Startup():
                self._member_session = self.store.session_id
                self._guarded(self._check_controller)
            case TreeChanged(node=WatchedNode.CONTROLLER):
                self._guarded(self._check_controller)
            case SessionExpired():
                self._deactivate()
            case SessionRenewed():
                self._guarded(self._reregister_and_elect)
            case _ if self.active is None:
                preempt(event)
            case _:
                active, asked = self.active, answered_once(event)
                self._guarded(lambda: active.handle(asked), asked)

    def resign(self) -> None:
        """Resigns, if this broker is the controller, so that another can be elected at once."""
        active = self.active
        self._deactivate()
        if active is not None:
            try:
                active.fenced.resign()
            except KlogError as error:
                _log.warning("the controller could not resign in the tree: %s", error)

    def _deactivate(self) -> None:
        if self.active is not None:
            _log.info("no longer the controller of epoch %d", self.active.fenced.epoch)
            self.active = None
            self.active_controller_id = NO_CONTROLLER
            self.request_queue.close()

    def _guarded(self, act: Callable[[], None], event: Event | None = None) -> None:
        """Calls `act`. Deactivates the controller if it fails, because it may have stopped halfway: the next
        controller reads everything again.
        """
        try:
            act()
            return
        except ControllerMovedError as error:
            _log.info("%s", error)
            self._deactivate()
            # If only the epoch was changed, `/controller` is still ours and no watch on it would fire.
            # Therefore look at it again.
            self.enqueue(TreeChanged(WatchedNode.CONTROLLER))
        except SessionExpiredError as error:
            # The session listener sends SessionExpired, unless the store was closed.
            _log.info("%s", error)
            self._deactivate()
        except Exception as error:
            # A defect must not end the thread either, or this broker could never be controller again.
            trace = None if isinstance(error, KlogError) else error
            _log.error("the controller failed: %s", error, exc_info=trace)
            self.failures += 1
            self.resign()
        if event is not None:
            preempt(event)

    def _reregister_and_elect(self) -> None:
        self.reregister()
        self._member_session = self.store.session_id
        self._check_controller()

    def _check_controller(self) -> None:
        """Reads who is controller, and takes part in an election if there is none."""
        elected = read_controller(self.store, self._on_controller_node)
        if elected is not None:
            own = elected.broker_id == self.settings().broker_id
            if self.active is not None and not own:
                self._deactivate()
            # The node may have our id although we are not active: it is left over from an earlier session,
            # which will expire, or an election that had begun before the last session ended succeeded after
            # it.
            if self.active is not None or not own or not resign_as_controller(self.store):
                self.active_controller_id = elected.broker_id
                return
        self._deactivate()
        self._elect()

    def _elect(self) -> None:
        if self.store.session_id != self._member_session:
            # The session ended while this event was handled. A broker that is not registered (another may
            # have its id now) is no candidate. SessionRenewed will register it.
            return
        broker_id = self.settings().broker_id
        try:
            epoch = elect(self.store, broker_id, self.now_ms())
        except ControllerMovedError:
            winner = read_controller(self.store)
            self.active_controller_id = NO_CONTROLLER if winner is None else winner.broker_id
            return
        self.active_controller_id = broker_id
        self.active = ActiveController(
            self.settings, self.store, epoch, self.request_queue, self.enqueue, self.observer
        )
        self.active.start()
        self.failures = 0

    def _on_controller_node(self, _event: WatchEvent) -> None:
        self.enqueue(TreeChanged(WatchedNode.CONTROLLER))
