"""The metadata store's interface: a tree of versioned nodes, as ZooKeeper defines it.

Rules come from ZooKeeper's programmer's guide: conditional writes by version, atomic multis, ephemeral nodes
that end with their session, sequential names, one-shot watches. `embedded` and `zookeeper` implement it;
what Kafka keeps in the tree is `znodes`' business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from klog.metadata.errors import StoreError

ANY_VERSION = -1
NO_OWNER = 0


class NodeStat(NamedTuple):
    """A node's versions: `created_zxid` (czxid) and `modified_zxid` (mzxid) order changes of the whole tree,
    `version` counts this node's changes, `ephemeral_owner` is the session that owns it, or 0."""

    version: int
    created_zxid: int
    modified_zxid: int
    created_ms: int
    ephemeral_owner: int = NO_OWNER


class Node(NamedTuple):
    """A node's data (None is not the same as empty) and its stat."""

    data: bytes | None
    stat: NodeStat


@dataclass(frozen=True, slots=True)
class Check:
    """Holds when the node is there with this version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """Creates a node; a sequential one gets ten digits appended to its name. Result: the path created."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replaces a node's data. Result: the new stat."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes a node without children."""

    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = Check | Create | SetData | Delete
OperationResult: TypeAlias = str | NodeStat | None
MultiResult: TypeAlias = list[OperationResult]


class WatchKind(Enum):
    """What a watch saw."""

    CREATED = "created"
    DELETED = "deleted"
    DATA_CHANGED = "data changed"
    CHILDREN_CHANGED = "children changed"


class WatchEvent(NamedTuple):
    kind: WatchKind
    path: str


class SessionState(Enum):
    """CONNECTED after start and after each reconnect; SUSPENDED while the server cannot be reached; EXPIRED
    when the session, its ephemerals and its watches are gone (a new session follows with CONNECTED)."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


Watch: TypeAlias = Callable[[WatchEvent], None]
SessionListener: TypeAlias = Callable[[SessionState], None]


class MetadataStore(Protocol):
    """One session with the tree.

    Watches are one-shot: each fires at most once, and may fire although nothing changed (after a reconnect),
    so its owner reads again. A watch given to `get` on a missing node is not set; given to `exists` it waits
    for the node. Watches and session listeners are called one at a time, in the order of the changes, on a
    thread that must not be blocked for long. Expiry of the session drops all watches.

    Reads are repeated over short losses of the connection. Writes are sent once: ConnectionLossError leaves
    open whether they happened. All raise SessionExpiredError (StoreClosedError once closed).
    """

    @property
    def session_id(self) -> int:
        """The present session, as `ephemeral_owner` names it."""

    def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Creates a node and returns its path. Raises NodeExistsError, NoNodeError (no parent)."""

    def get(self, path: str, watch: Watch | None = None) -> Node:
        """A node's data; `watch` waits for its change or deletion. Raises NoNodeError."""

    def exists(self, path: str, watch: Watch | None = None) -> NodeStat | None:
        """A node's stat, or None; `watch` waits for its creation, change or deletion."""

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """The names of a node's children, sorted; `watch` waits for a child to come or go, or for the
        deletion of the node. Raises NoNodeError."""

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> NodeStat:
        """Replaces a node's data. Raises NoNodeError, BadVersionError."""

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Deletes a node. Raises NoNodeError, BadVersionError, NotEmptyError."""

    def multi(self, operations: Sequence[Operation]) -> MultiResult:
        """Does all operations or none. Raises the error of the one that failed, with its `op_index`."""

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Many nodes at the price of one round trip; None for those that are not there."""

    def multi_many(self, multis: Sequence[Sequence[Operation]]) -> list[MultiResult | StoreError]:
        """Many multis in order, each for itself, pipelined: its results, or the error that stopped it."""

    def add_session_listener(self, listener: SessionListener) -> None:
        """Calls `listener` at each change of the session's state from now on."""

    def wait_connected(self, timeout_ms: int | None = None) -> None:
        """Returns when connected. Raises ConnectionLossError after the timeout, StoreClosedError."""

    def close(self) -> None:
        """Ends the session: its ephemeral nodes go at once. Closing twice is harmless."""


def parent_path(path: str) -> str:
    """`/a/b` -> `/a`, `/a` -> `/`."""
    return path.rpartition("/")[0] or "/"


def missing_parents(path: str) -> list[str]:
    """All proper ancestors of a path below the root, outermost first."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]
