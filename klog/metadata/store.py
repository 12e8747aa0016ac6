"""The interface of the metadata store: a tree of versioned nodes, as ZooKeeper defines it.

The rules are those of ZooKeeper's programmer's guide: conditional writes by version, atomic multis, ephemeral
nodes that end with their session, sequential names, one-shot watches. `embedded` and `zookeeper` implement
the interface. `znodes` defines what Kafka stores in the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias, TypeVar, cast

from klog.metadata.errors import NodeExistsError, NoNodeError, StoreError

_Result = TypeVar("_Result")

ANY_VERSION = -1
NO_OWNER = 0


class NodeStat(NamedTuple):
    """The versions of a node.

    `created_zxid` (czxid) and `modified_zxid` (mzxid) order the changes of the whole tree. `version` counts
    the changes of this node's data. `ephemeral_owner` is the session that owns the node, or 0.
    """

    version: int
    created_zxid: int
    modified_zxid: int
    created_ms: int
    ephemeral_owner: int = NO_OWNER


class Node(NamedTuple):
    """The data of a node (None differs from empty) and its versions."""

    data: bytes | None
    stat: NodeStat


@dataclass(frozen=True, slots=True)
class Check:
    """Succeeds if the node exists with this version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """Creates a node.

    A sequential node gets ten digits appended to its name. Result: the path of the new node.
    """

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replaces the data of a node. Result: its new versions."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes a node that has no children."""

    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = Check | Create | SetData | Delete
OperationResult: TypeAlias = str | NodeStat | None
MultiResult: TypeAlias = list[OperationResult]


class WatchKind(Enum):
    """The kinds of changes that fire a watch."""

    CREATED = "created"
    DELETED = "deleted"
    DATA_CHANGED = "data changed"
    CHILDREN_CHANGED = "children changed"


class WatchEvent(NamedTuple):
    kind: WatchKind
    path: str


class SessionState(Enum):
    """The states of a session.

    CONNECTED follows the start and each reconnection. SUSPENDED means that no server can be reached. EXPIRED
    means that the session, its ephemeral nodes and its watches are gone; a new session follows with
    CONNECTED.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


Watch: TypeAlias = Callable[[WatchEvent], None]
SessionListener: TypeAlias = Callable[[SessionState], None]


class MetadataStore(Protocol):
    """One session with the tree.

    A watch fires at most once. It may fire although nothing has changed (after a reconnection), so its owner
    must read again. A watch that is given to `get` is not set if the node does not exist; `exists` sets it
    also then. Watches and session listeners are called one at a time, in the order of the changes, on a
    thread that must not be blocked for long. All watches are dropped when the session expires.

    Reads are retried over short losses of the connection. Writes are sent once, and may or may not have
    happened after ConnectionLossError. All methods raise SessionExpiredError (StoreClosedError after
    `close`).
    """

    @property
    def session_id(self) -> int:
        """The id of the present session, which `ephemeral_owner` holds."""

    def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Creates a node and returns its path. Raises NodeExistsError, or NoNodeError without a parent."""
        for parent in missing_parents(path) if make_parents else ():
            with suppress(NodeExistsError):
                self.multi([Create(parent)])
        return cast(str, self.multi([Create(path, data, ephemeral, sequential)])[0])

    def get(self, path: str, watch: Watch | None = None) -> Node:
        """The data of a node; `watch` fires when it is changed or deleted. Raises NoNodeError."""

    def exists(self, path: str, watch: Watch | None = None) -> NodeStat | None:
        """The versions of a node, or None; `watch` fires when it is created, changed or deleted."""

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """The sorted names of a node's children; `watch` fires when a child comes or goes, or the node is
        deleted.

        Raises NoNodeError.
        """

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> NodeStat:
        """Replaces the data of a node. Raises NoNodeError, BadVersionError."""
        return cast(NodeStat, self.multi([SetData(path, data, version)])[0])

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Deletes a node. Raises NoNodeError, BadVersionError, NotEmptyError."""
        self.multi([Delete(path, version)])

    def multi(self, operations: Sequence[Operation]) -> MultiResult:
        """Does all operations or none. Raises the error of the operation that failed, with its `op_index`."""
        return required(self.multi_many([operations])[0])

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Reads many nodes in one round trip; None for those that do not exist."""

    def multi_many(self, multis: Sequence[Sequence[Operation]]) -> list[MultiResult | StoreError]:
        """Sends many multis in order without waiting in between. Returns the results or the error of each."""

    def sync(self) -> None:
        """Waits until reads see what any session has written before. A server of ZooKeeper may lag behind
        others.
        """

    def add_session_listener(self, listener: SessionListener) -> None:
        """Calls `listener` at each change of the session's state from now on."""

    def wait_connected(self, timeout_ms: int | None = None) -> None:
        """Waits until connected. Raises ConnectionLossError after the timeout, StoreClosedError."""

    def close(self) -> None:
        """Ends the session and deletes its ephemeral nodes. May be called again."""


def required(outcome: _Result | StoreError) -> _Result:
    """A result. Raises the outcome if it is an error."""
    if isinstance(outcome, StoreError):
        raise outcome
    return outcome


def find(store: MetadataStore, path: str, watch: Watch | None = None) -> Node | None:
    """A node, None if it does not exist; `watch` fires when it changes or goes."""
    try:
        return store.get(path, watch)
    except NoNodeError:
        return None


def children_of(store: MetadataStore, path: str) -> list[str]:
    """The sorted names of a node's children; none if the node does not exist."""
    try:
        return store.children(path)
    except NoNodeError:
        return []


def parent_path(path: str) -> str:
    """`/a/b` -> `/a`, `/a` -> `/`."""
    return path.rpartition("/")[0] or "/"


def missing_parents(path: str) -> list[str]:
    """All ancestors of a path below the root, outermost first."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]
