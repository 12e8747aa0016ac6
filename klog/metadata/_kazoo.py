"""The store's words in kazoo's, and back: operations, results, watch events, states and errors.

kazoo is imported when it is used: a broker with the embedded store never loads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from klog.metadata.errors import (
    BadVersionError,
    ConnectionLossError,
    EphemeralParentError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    StoreError,
    StoreFailedError,
)
from klog.metadata.store import (
    Check,
    Create,
    Delete,
    MultiResult,
    NodeStat,
    Operation,
    OperationResult,
    SessionState,
    SetData,
    WatchKind,
)

if TYPE_CHECKING:
    from kazoo.protocol.states import ZnodeStat

WATCH_KINDS = {
    "CREATED": WatchKind.CREATED,
    "DELETED": WatchKind.DELETED,
    "CHANGED": WatchKind.DATA_CHANGED,
    "CHILD": WatchKind.CHILDREN_CHANGED,
}

SESSION_STATES = {
    "CONNECTED": SessionState.CONNECTED,
    "SUSPENDED": SessionState.SUSPENDED,
    "LOST": SessionState.EXPIRED,
}


def node_stat(stat: ZnodeStat) -> NodeStat:
    return NodeStat(stat.version, stat.czxid, stat.mzxid, stat.ctime, stat.ephemeralOwner)


def request(operation: Operation, root: str) -> object:
    """One operation as kazoo sends it (its own methods refuse null data, which Kafka writes)."""
    from kazoo.protocol import serialization as wire
    from kazoo.security import OPEN_ACL_UNSAFE

    path = root + operation.path
    match operation:
        case Check():
            return wire.CheckVersion(path, operation.version)
        case Create():
            flags = operation.ephemeral | operation.sequential << 1
            return wire.Create(path, operation.data, OPEN_ACL_UNSAFE, flags)
        case SetData():
            return wire.SetData(path, operation.data, operation.version)
        case Delete():
            return wire.Delete(path, operation.version)


def multi_outcome(
    operations: Sequence[Operation], answers: Sequence[object], root_chars: int
) -> MultiResult | StoreError:
    """What a multi came to: kazoo answers every operation, with the reason at one when it failed."""
    from kazoo.exceptions import KazooException, RolledBackError, RuntimeInconsistency

    results: list[OperationResult] = []
    for index, (operation, answer) in enumerate(zip(operations, answers, strict=True)):
        if isinstance(answer, RolledBackError | RuntimeInconsistency):
            continue
        if isinstance(answer, KazooException):
            error = store_error(answer, operation.path)
            error.op_index = index
            return error
        match operation:
            case Create():
                results.append(cast(str, answer)[root_chars:])
            case SetData():
                results.append(node_stat(cast("ZnodeStat", answer)))
            case _:
                results.append(None)
    return results


def store_error(error: Exception, path: str | None) -> StoreError:
    """The error of the store for one of kazoo's."""
    from kazoo import exceptions as kazoo

    kinds: tuple[tuple[type[Exception], type[StoreError], str], ...] = (
        (kazoo.NoNodeError, NoNodeError, "no such node, or no parent to hold it"),
        (kazoo.NodeExistsError, NodeExistsError, "the node is there already"),
        (kazoo.BadVersionError, BadVersionError, "the node has another version"),
        (kazoo.NotEmptyError, NotEmptyError, "the node has children"),
        (kazoo.NoChildrenForEphemeralsError, EphemeralParentError, "an ephemeral node has no children"),
        # A kind of SessionExpiredError to kazoo, but it only says that the socket is gone for now.
        (kazoo.ConnectionClosedError, ConnectionLossError, "the connection to ZooKeeper is closed"),
        (kazoo.SessionExpiredError, SessionExpiredError, "the ZooKeeper session expired"),
        (kazoo.ConnectionLoss, ConnectionLossError, "the connection to ZooKeeper broke"),
    )
    for theirs, ours, what in kinds:
        if isinstance(error, theirs):
            return ours(f"{what}: {path}" if path else what, path=path)
    return StoreFailedError(f"ZooKeeper: {type(error).__name__} {error}".rstrip(), path=path)
