"""Registers this broker in the metadata store, and again in each new session.

If a broker was killed, its registration stays until its ZooKeeper session ends. Kafka does not start
meanwhile; klog waits for that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from klog.metadata.cluster import announce_log_dir_failure, read_broker, register_broker, update_broker
from klog.metadata.errors import (
    BrokerIdInUseError,
    NoNodeError,
    SessionExpiredError,
    StoreError,
    WaitCancelledError,
)
from klog.metadata.store import MetadataStore, SessionState
from klog.metadata.values import BrokerRegistration

_log = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 0.1
_RECONNECT_S: Final = 2.0
# ZooKeeper ends a session with the tick in which it expires. A tick is 2 or 3 s in most configurations.
_TICK_MS: Final = 3000


class Registration:
    """The registration of this broker. `present` makes it from the endpoints of now."""

    def __init__(self, store: MetadataStore, present: Callable[[], BrokerRegistration]) -> None:
        self._store = store
        self._present = present
        self._session_id: int | None = None
        self._lost_s: float | None = None
        self.epoch = -1  # of the last registration

    def session_changed(self, state: SessionState) -> None:
        """Take note of a lost or renewed connection to the store."""
        self._lost_s = None if state is SessionState.CONNECTED else time.monotonic()

    @property
    def is_cut_off(self) -> bool:
        """Whether the store has not been connected for longer than a change of servers takes."""
        lost_s = self._lost_s
        return lost_s is not None and time.monotonic() - lost_s > _RECONNECT_S

    def register(self, is_stopping: Callable[[], bool], session_timeout_ms: int | None = None) -> None:
        """Register the broker with a new epoch, for as long as the store's session lasts.

        If another session owns the id, wait for its end: up to a session timeout if that is given. Raises
        `BrokerIdInUseError` after that, `WaitCancelledError` if `is_stopping` becomes true, `StoreError`.
        """
        wait_s = None if session_timeout_ms is None else (session_timeout_ms + _TICK_MS) / 1000
        begin_s = time.monotonic()
        has_warned = False
        while not self._registered():
            waited_s = time.monotonic() - begin_s
            if wait_s is not None and waited_s > wait_s:
                raise BrokerIdInUseError(
                    f"broker id {self._present().broker_id} is in use by another live broker{self._owner()}",
                    cure="give this one another broker.id, or stop the other",
                )
            if is_stopping():
                raise WaitCancelledError("stopped while another session had registered the broker's id")
            if not has_warned:
                has_warned = True
                self._warn(wait_s)
            time.sleep(_LOOK_EVERY_S)

    def _registered(self) -> bool:
        try:
            self.epoch = register_broker(self._store, self._present(), self._session_id)
        except BrokerIdInUseError:
            return False
        self._session_id = self._store.session_id
        return True

    def _warn(self, wait_s: float | None) -> None:
        _log.warning(
            "broker id %d is registered by another ZooKeeper session%s: waiting%s for its end. If no other"
            " broker has this id, it is the session of a broker that was killed",
            self._present().broker_id,
            self._owner(),
            "" if wait_s is None else f" up to {wait_s:g} s",
        )

    def _owner(self) -> str:
        """The addresses of the broker that has registered this one's id, as a part of a sentence."""
        other = read_broker(self._store, self._present().broker_id)
        return "" if other is None else "".join(f", {each.host}:{each.port}" for each in other.endpoints)

    def update(self) -> None:
        """Rewrite the registration because the endpoints have changed.

        Without a session there is none, and the next one has the present endpoints.
        """
        with suppress(NoNodeError, SessionExpiredError):
            update_broker(self._store, self._present())


def announce_failed_directory(store: MetadataStore, broker_id: int) -> None:
    """Let the controller ask which replicas of this broker are offline. Waits while ZooKeeper is away."""
    try:
        announce_log_dir_failure(store, broker_id)
    except SessionExpiredError:
        pass  # the controller asks for all replicas of a broker that comes back
    except StoreError as error:
        _log.error("the failure of a log directory could not be announced: %s", error)
