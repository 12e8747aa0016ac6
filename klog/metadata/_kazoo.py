"""Maps operations, results, watch events, session states and errors between the store interface and kazoo.

kazoo is imported when it is used, so that a broker with the embedded store never loads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

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
    Node,
    NodeStat,
    Operation,
    OperationResult,
    SessionState,
    SetData,
    WatchKind,
)
from klog.metadata.zookeeper_access import ZooKeeperAccess

if TYPE_CHECKING:
    from kazoo.protocol.states import ZnodeStat

_ACCESS_CURE: Final = (
    "connect as the owner of the nodes: with zookeeper.ssl.keystore.location, or a login in the JAAS file"
)
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


def read_node(path: str, answer: tuple[bytes | None, ZnodeStat] | Exception) -> Node | None:
    """A node of many that were read together; None if it does not exist. Raises `StoreError`."""
    from kazoo.exceptions import NoNodeError as KazooNoNodeError

    if isinstance(answer, KazooNoNodeError):
        return None
    if isinstance(answer, Exception):
        raise store_error(answer, path)
    data, stat = answer
    return Node(data, node_stat(stat))


def is_unimplemented(error: StoreError) -> bool:
    """Whether a server did not know the kind of a request."""
    from kazoo.exceptions import UnimplementedError

    return isinstance(error.__cause__, UnimplementedError)


def acl_of(path: str, access: ZooKeeperAccess) -> list[object]:
    """Who may do what with a new node."""
    from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

    if access.is_open(path):
        return list(OPEN_ACL_UNSAFE)
    return [*CREATOR_ALL_ACL] if access.is_secret(path) else [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]


def request(operation: Operation, root: str, access: ZooKeeperAccess) -> object:
    """One operation as a kazoo request. kazoo's own methods refuse null data, which Kafka writes."""
    from kazoo.protocol import serialization as wire

    path = root + operation.path
    match operation:
        case Check():
            return wire.CheckVersion(path, operation.version)
        case Create():
            flags = operation.ephemeral | operation.sequential << 1
            return wire.Create(path, operation.data, acl_of(operation.path, access), flags)
        case SetData():
            return wire.SetData(path, operation.data, operation.version)
        case Delete():
            return wire.Delete(path, operation.version)


def multi_outcome(
    operations: Sequence[Operation], answers: Sequence[object], root_chars: int
) -> MultiResult | StoreError:
    """The outcome of a multi. kazoo answers each operation; if the
    multi failed, one answer holds the reason.
    """
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
    """The store's error for an error of kazoo."""
    from kazoo import exceptions as kazoo

    kinds: tuple[tuple[type[Exception], type[StoreError], str], ...] = (
        (kazoo.NoNodeError, NoNodeError, "the node or its parent does not exist"),
        (kazoo.NodeExistsError, NodeExistsError, "the node exists already"),
        (kazoo.BadVersionError, BadVersionError, "the node has another version"),
        (kazoo.NotEmptyError, NotEmptyError, "the node has children"),
        (kazoo.NoChildrenForEphemeralsError, EphemeralParentError, "an ephemeral node has no children"),
        # In kazoo this is a kind of SessionExpiredError, but it only means that the socket is closed for now.
        (kazoo.ConnectionClosedError, ConnectionLossError, "the connection to ZooKeeper is closed"),
        (kazoo.SessionExpiredError, SessionExpiredError, "the ZooKeeper session expired"),
        (kazoo.ConnectionLoss, ConnectionLossError, "the connection to ZooKeeper broke"),
        (kazoo.NoAuthError, StoreFailedError, "ZooKeeper does not let this client read or change the node"),
        (kazoo.AuthFailedError, StoreFailedError, "ZooKeeper refused the login"),
    )
    for theirs, ours, what in kinds:
        if isinstance(error, theirs):
            cure = _ACCESS_CURE if ours is StoreFailedError else None
            return ours(f"{what}: {path}" if path else what, path=path, cure=cure)
    return StoreFailedError(f"ZooKeeper: {type(error).__name__} {error}".rstrip(), path=path)
