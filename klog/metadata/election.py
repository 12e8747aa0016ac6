"""Elects the controller, and fences the writes of controllers that have been replaced.

Election: the ephemeral `/controller` and the next `/controller_epoch` are written in one multi. Fencing:
every write of a controller checks that `/controller_epoch` still has the version that its own election wrote.
A controller that has been replaced and does not know it yet therefore writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from klog.metadata import paths, znodes
from klog.metadata.errors import (
    BadVersionError,
    ConnectionLossError,
    ControllerMovedError,
    NodeExistsError,
    NoNodeError,
    StoreError,
)
from klog.metadata.retried_writes import write_all
from klog.metadata.store import (
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeStat,
    Operation,
    OperationResult,
    SetData,
    Watch,
    find,
    required,
)
from klog.metadata.values import ControllerRegistration

INITIAL_EPOCH = 0


class ControllerEpoch(NamedTuple):
    """The epoch of a controller, and the version of `/controller_epoch` that fences its writes."""

    epoch: int
    version: int


def read_controller(store: MetadataStore, watch: Watch | None = None) -> ControllerRegistration | None:
    """The present controller, or None; `watch` fires when it comes, changes or goes."""
    if watch is not None:
        store.exists(paths.CONTROLLER, watch)
    node = find(store, paths.CONTROLLER)
    return None if node is None else znodes.decode_controller(node.data)


def elect(store: MetadataStore, broker_id: int, now_ms: int) -> ControllerEpoch:
    """Makes this broker the controller. Raises ControllerMovedError if another broker was faster."""
    current = _read_epoch(store)
    elected = current.epoch + 1
    data = znodes.encode_controller(ControllerRegistration(broker_id, now_ms))
    operations: list[Operation] = [
        Create(paths.CONTROLLER, data, ephemeral=True),
        SetData(paths.CONTROLLER_EPOCH, znodes.encode_epoch(elected), current.version),
    ]
    while True:
        try:
            stat = store.multi(operations)[1]
        except ConnectionLossError:
            store.wait_connected()
        except (NodeExistsError, BadVersionError):
            return _after_lost_reply(store, elected)
        else:
            return ControllerEpoch(elected, stat.version if isinstance(stat, NodeStat) else -1)


def resign_as_controller(store: MetadataStore) -> bool:
    """Deletes `/controller` if this session owns it. Returns whether it did."""
    current = _read_epoch(store)
    stat = store.exists(paths.CONTROLLER)
    if stat is None or stat.ephemeral_owner != store.session_id:
        return False
    FencedStore(store, current).resign()
    return True


def _read_epoch(store: MetadataStore) -> ControllerEpoch:
    while True:
        try:
            node = store.get(paths.CONTROLLER_EPOCH)
        except NoNodeError:
            with suppress(NodeExistsError, ConnectionLossError):
                store.create(paths.CONTROLLER_EPOCH, znodes.encode_epoch(INITIAL_EPOCH))
            store.wait_connected()
        else:
            return ControllerEpoch(znodes.decode_epoch(node.data), node.stat.version)


def _after_lost_reply(store: MetadataStore, elected: int) -> ControllerEpoch:
    """The election was won after all if this session owns `/controller` in the epoch `elected`."""
    stat = store.exists(paths.CONTROLLER)
    if stat is not None and stat.ephemeral_owner == store.session_id:
        current = _read_epoch(store)
        if current.epoch == elected:
            return current
    raise ControllerMovedError("another broker was elected controller")


class FencedStore:
    """The store as one elected controller may write it. Reads go to `store`."""

    def __init__(self, store: MetadataStore, elected: ControllerEpoch) -> None:
        self.store = store
        self.epoch = elected.epoch
        self._guard = Check(paths.CONTROLLER_EPOCH, elected.version)

    def write_all(self, operations: Sequence[Operation]) -> list[OperationResult | StoreError]:
        """The outcome of each operation. Raises ControllerMovedError if one was fenced."""
        outcomes = write_all(self.store, operations, self._guard)
        for outcome in outcomes:
            if isinstance(outcome, StoreError) and outcome.op_index == 0:
                raise ControllerMovedError(
                    f"controller epoch {self.epoch} is over: another controller has been elected"
                )
        return outcomes

    def write(self, operation: Operation) -> OperationResult:
        """Does one write. Raises its StoreError, or ControllerMovedError."""
        return required(self.write_all([operation])[0])

    def resign(self) -> None:
        """Deletes `/controller`, unless another controller has been elected."""
        with suppress(NoNodeError, ControllerMovedError):
            self.write(Delete(paths.CONTROLLER))
