"""The node tree as a pure state machine: a multi is planned as a commit, which is applied later.

`plan` decides what a multi would do and raises ZooKeeper's errors. `apply` does it. The caller makes the
commit durable in between. The module uses no threads, files or watches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from klog.metadata.errors import (
    BadVersionError,
    EphemeralParentError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    StoreError,
)
from klog.metadata.store import (
    ANY_VERSION,
    NO_OWNER,
    Check,
    Create,
    Delete,
    MultiResult,
    Node,
    NodeStat,
    Operation,
    OperationResult,
    SetData,
    WatchEvent,
    WatchKind,
    parent_path,
)

ROOT = "/"


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node as it is stored. `child_changes` (cversion) counts children that were created or deleted, and
    numbers sequential children.
    """

    data: bytes | None
    stat: NodeStat
    child_changes: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """The changes of a multi (None: the node is deleted), its results, and the watch events, in order."""

    zxid: int
    changes: Mapping[str, NodeRecord | None]
    results: MultiResult
    events: Sequence[WatchEvent]


class NodeTree:
    """All nodes by path, from the records of a journal. Without records there is only the root."""

    def __init__(self, records: Mapping[str, NodeRecord] | None = None, last_zxid: int = 0) -> None:
        self._records: dict[str, NodeRecord] = dict(records or {})
        self._records.setdefault(ROOT, NodeRecord(None, NodeStat(0, 0, 0, 0)))
        self._children: dict[str, set[str]] = {path: set() for path in self._records}
        for path in self._records:
            if path != ROOT:
                self._children[parent_path(path)].add(path)
        self.last_zxid = last_zxid

    def find(self, path: str) -> Node | None:
        record = self._records.get(path)
        return None if record is None else Node(record.data, record.stat)

    def child_names(self, path: str) -> list[str]:
        """The sorted names of a node's children. Raises NoNodeError."""
        if path not in self._children:
            raise NoNodeError(f"no node {path}", path=path)
        return sorted(child.rpartition("/")[2] for child in self._children[path])

    def ephemerals(self, session_id: int | None = None) -> list[str]:
        """The ephemeral nodes of one session, or of all sessions."""
        return sorted(
            path
            for path, record in self._records.items()
            if record.stat.ephemeral_owner != NO_OWNER and session_id in (None, record.stat.ephemeral_owner)
        )

    def plan(self, operations: Iterable[Operation], session_id: int, now_ms: int) -> Commit:
        """The commit for these operations. Raises the StoreError of the first operation that fails."""
        draft = _Draft(self._records, self._children, self.last_zxid + 1, session_id, now_ms)
        for index, operation in enumerate(operations):
            try:
                draft.do(operation)
            except StoreError as error:
                error.op_index = index
                raise
        return Commit(draft.zxid, draft.changes, draft.results, draft.events)

    def apply(self, commit: Commit) -> None:
        """Applies a commit, which must have been planned on the present state of the tree."""
        for path, record in commit.changes.items():
            if record is None:
                self._records.pop(path, None)
                self._children.pop(path, None)
                self._children.get(parent_path(path), set()).discard(path)
            else:
                if path not in self._records:
                    self._children[path] = set()
                    self._children[parent_path(path)].add(path)
                self._records[path] = record
        self.last_zxid = commit.zxid


@dataclass(slots=True, eq=False)
class _Draft:
    """The changes of one multi on top of the tree, so that later operations see earlier ones."""

    records: Mapping[str, NodeRecord]
    children: Mapping[str, set[str]]
    zxid: int
    session_id: int
    now_ms: int
    changes: dict[str, NodeRecord | None] = field(default_factory=dict)
    results: MultiResult = field(default_factory=list)
    events: list[WatchEvent] = field(default_factory=list)

    def do(self, operation: Operation) -> None:
        result: OperationResult = None
        match operation:
            case Check():
                self._versioned(operation.path, operation.version)
            case Create():
                result = self._create(operation)
            case SetData():
                result = self._set(operation)
            case Delete():
                self._delete(operation)
        self.results.append(result)

    def _find(self, path: str) -> NodeRecord | None:
        return self.changes[path] if path in self.changes else self.records.get(path)

    def _versioned(self, path: str, version: int) -> NodeRecord:
        record = self._find(path)
        if record is None:
            raise NoNodeError(f"no node {path}", path=path)
        if version not in (ANY_VERSION, record.stat.version):
            raise BadVersionError(f"{path} has version {record.stat.version}, not {version}", path=path)
        return record

    def _create(self, operation: Create) -> str:
        above = parent_path(operation.path)
        parent = self._find(above)
        if parent is None:
            raise NoNodeError(f"no parent node {above} for {operation.path}", path=operation.path)
        if parent.stat.ephemeral_owner != NO_OWNER:
            raise EphemeralParentError(f"{above} is ephemeral: it has no children", path=operation.path)
        path = f"{operation.path}{parent.child_changes:010d}" if operation.sequential else operation.path
        if self._find(path) is not None:
            raise NodeExistsError(f"{path} exists already", path=path)
        owner = self.session_id if operation.ephemeral else NO_OWNER
        stat = NodeStat(0, self.zxid, self.zxid, self.now_ms, owner)
        self.changes[path] = NodeRecord(operation.data, stat)
        self._count_child_change(above)
        self.events.append(WatchEvent(WatchKind.CREATED, path))
        self.events.append(WatchEvent(WatchKind.CHILDREN_CHANGED, above))
        return path

    def _set(self, operation: SetData) -> NodeStat:
        record = self._versioned(operation.path, operation.version)
        stat = record.stat._replace(version=record.stat.version + 1, modified_zxid=self.zxid)
        self.changes[operation.path] = replace(record, data=operation.data, stat=stat)
        self.events.append(WatchEvent(WatchKind.DATA_CHANGED, operation.path))
        return stat

    def _delete(self, operation: Delete) -> None:
        self._versioned(operation.path, operation.version)
        if self._has_children(operation.path):
            raise NotEmptyError(f"{operation.path} has children", path=operation.path)
        self.changes[operation.path] = None
        above = parent_path(operation.path)
        self._count_child_change(above)
        self.events.append(WatchEvent(WatchKind.DELETED, operation.path))
        self.events.append(WatchEvent(WatchKind.CHILDREN_CHANGED, above))

    def _has_children(self, path: str) -> bool:
        kept = any(self.changes.get(child, True) is not None for child in self.children.get(path, ()))
        return kept or any(
            record is not None and parent_path(changed) == path and changed != ROOT
            for changed, record in self.changes.items()
        )

    def _count_child_change(self, path: str) -> None:
        record = self._find(path)
        if record is not None:
            self.changes[path] = replace(record, child_changes=record.child_changes + 1)
