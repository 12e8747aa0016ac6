"""The controller without its thread: election, reigns, and what becomes of each event. Deterministic.

`Controller` in `runner` gives it a thread, a queue and timers; simulated clusters call `handle` themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from klog.controller.events import (
    Event,
    SessionExpired,
    SessionRenewed,
    Startup,
    TreeChanged,
    Watched,
    preempt,
)
from klog.controller.observer import ControllerObserver
from klog.controller.outbox import Outbox
from klog.controller.reign import Reign
from klog.controller.settings import ControllerSettings
from klog.formats.errors import KlogError
from klog.metadata.election import elect, give_up_office, read_controller
from klog.metadata.errors import ControllerMovedError, SessionExpiredError
from klog.metadata.store import MetadataStore, WatchEvent

_log = logging.getLogger(__name__)

NO_CONTROLLER = -1


class ControllerCore:
    """One broker's part in who is controller. `reregister` registers the broker anew after its session has
    expired; `enqueue` brings an event to `handle`, later, on the one thread that calls it."""

    def __init__(
        self,
        settings: Callable[[], ControllerSettings],
        store: MetadataStore,
        outbox: Outbox,
        enqueue: Callable[[Event], None],
        reregister: Callable[[], None],
        now_ms: Callable[[], int],
        observer: ControllerObserver,
    ) -> None:
        self._settings = settings
        self._store = store
        self._outbox = outbox
        self._enqueue = enqueue
        self._reregister = reregister
        self._now_ms = now_ms
        self._observer = observer
        self.reign: Reign | None = None
        self.active_controller_id = NO_CONTROLLER
        # The store's session in which the broker is registered.
        self._member_session: int | None = None
        # How often in a row the tree or what is in it has failed this controller.
        self.failures = 0

    @property
    def is_active(self) -> bool:
        return self.reign is not None

    def handle(self, event: Event) -> None:
        """One event, to its end."""
        match event:
            case Startup():
                self._member_session = self._store.session_id
                self._guarded(self._follow_controller)
            case TreeChanged(node=Watched.CONTROLLER):
                self._guarded(self._follow_controller)
            case SessionExpired():
                self._end_reign()
            case SessionRenewed():
                self._guarded(self._join_again)
            case _ if self.reign is None:
                preempt(event)
            case _:
                reign = self.reign
                self._guarded(lambda: reign.handle(event), event)

    def resign(self) -> None:
        """Gives the office up, if this broker has it, so that another can be elected at once."""
        reign = self.reign
        self._end_reign()
        if reign is not None:
            try:
                reign.fenced.resign()
            except KlogError as error:
                _log.warning("the controller could not resign in the tree: %s", error)

    def _end_reign(self) -> None:
        if self.reign is not None:
            _log.info("the reign of epoch %d ends", self.reign.fenced.reign.epoch)
            self.reign = None
            self.active_controller_id = NO_CONTROLLER
            self._outbox.close()

    def _guarded(self, act: Callable[[], None], event: Event | None = None) -> None:
        """Acts. Whatever fails ends the reign, which may have stopped halfway: the next one reads anew."""
        try:
            act()
            return
        except ControllerMovedError as error:
            _log.info("%s", error)
            self._end_reign()
            # It may be the epoch alone that was changed: then `/controller` is still ours, and nothing that
            # happens to it would tell.
            self._enqueue(TreeChanged(Watched.CONTROLLER))
        except SessionExpiredError as error:
            # The session's listener brings SessionExpired, unless the store was closed.
            _log.info("%s", error)
            self._end_reign()
        except Exception as error:
            # A defect, too: without its thread this broker would be no controller any more.
            trace = None if isinstance(error, KlogError) else error
            _log.error("the controller failed: %s", error, exc_info=trace)
            self.failures += 1
            self.resign()
        if event is not None:
            preempt(event)

    def _join_again(self) -> None:
        self._reregister()
        self._member_session = self._store.session_id
        self._follow_controller()

    def _follow_controller(self) -> None:
        """Looks who is controller, and stands for election when nobody is."""
        elected = read_controller(self._store, self._on_controller_node)
        if elected is not None:
            own = elected.broker_id == self._settings().broker_id
            if self.reign is not None and not own:
                self._end_reign()
            # Our id without a reign: left over from a session before, which will expire; or of this one, when
            # an election that had begun before the end of the last session came through after it.
            if self.reign is not None or not own or not give_up_office(self._store):
                self.active_controller_id = elected.broker_id
                return
        self._end_reign()
        self._stand_for_election()

    def _stand_for_election(self) -> None:
        if self._store.session_id != self._member_session:
            # The last session has ended under this event. A broker that is not registered (its id may be
            # another's by now) is no candidate; SessionRenewed, which registers it, is on its way.
            return
        broker_id = self._settings().broker_id
        try:
            epoch = elect(self._store, broker_id, self._now_ms())
        except ControllerMovedError:
            winner = read_controller(self._store)
            self.active_controller_id = NO_CONTROLLER if winner is None else winner.broker_id
            return
        self.active_controller_id = broker_id
        self.reign = Reign(self._settings, self._store, epoch, self._outbox, self._enqueue, self._observer)
        self.reign.start()
        self.failures = 0

    def _on_controller_node(self, _event: WatchEvent) -> None:
        self._enqueue(TreeChanged(Watched.CONTROLLER))
