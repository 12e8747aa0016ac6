"""ZooKeeper's tree as its files make it: nodes of a snapshot, and transactions that change them.

Rules: ZooKeeper's `DataTree.processTxn` and `DigestCalculator`. A snapshot is fuzzy: transactions after its
zxid may be in it already, and are done again. The digest is the sum of the CRC-32s of all nodes that are not
below /zookeeper.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from klog.formats import zookeeper_files as z
from klog.formats.errors import FormatError
from klog.formats.values import Value
from klog.formats.zookeeper_reading import FileNode, Transaction, new_node, read_part
from klog.metadata.errors import NoNodeError
from klog.metadata.store import Node, NodeStat, parent_path

_UINT64: Final = 1 << 64
_INT64_SIGN: Final = 1 << 63
_WITHOUT_DIGEST: Final = "/zookeeper/"
_CONTAINER_OWNER: Final = -(1 << 63)
_TTL_MASK: Final = 0xFF
_CREATES: Final = frozenset({z.CREATE, z.CREATE_2, z.CREATE_CONTAINER, z.CREATE_TTL})
_DELETES: Final = frozenset({z.DELETE, z.DELETE_CONTAINER})
_CHANGES: Final = frozenset({z.SET_DATA, z.RECONFIGURE, z.SET_ACL})


class FileTree:
    """The nodes by path; the root's is empty. If it `counts`, its digest is known after each change."""

    def __init__(self, *, counts: bool = False) -> None:
        self.nodes: dict[str, FileNode] = {}
        self.zxid = 0
        self._counts = counts
        self._sum = 0
        self._by_owner: dict[int, set[str]] = defaultdict(set)

    @property
    def digest(self) -> int:
        """The digest of the tree as ZooKeeper writes it, a signed number of 64 bits."""
        total = self._sum if self._counts else sum(_digest(*each) for each in self.nodes.items())
        total %= _UINT64
        return total - _UINT64 if total >= _INT64_SIGN else total

    def add(self, path: str, node: FileNode) -> None:
        """Puts a node in, in place of the one that is there."""
        if path in self.nodes:
            self._drop(path)
        self.nodes[path] = node
        if self._counts:
            self._sum += _digest(path, node)
        owner = node.owner
        if owner and _is_ephemeral(owner):
            self._by_owner[owner].add(path)

    def _drop(self, path: str) -> FileNode | None:
        node = self._taken(path)
        if node is not None:
            del self.nodes[path]
            self._by_owner.get(node.owner, set()).discard(path)
        return node

    def _taken(self, path: str) -> FileNode | None:
        """A node that is about to change. A missing one was deleted later: the snapshot knows already."""
        node = self.nodes.get(path)
        if self._counts and node is not None:
            self._sum -= _digest(path, node)
        return node

    def _put_back(self, path: str, node: FileNode) -> None:
        if self._counts:
            self._sum += _digest(path, node)

    def apply(self, transaction: Transaction, position_bytes: int) -> None:
        """Does a transaction. Raises `FormatError` for a part of a multi that cannot be read."""
        if transaction.kind == z.MULTI:
            parts = transaction.record["transactions"] or ()
            if not any(part["type"] == z.ERROR for part in parts):
                for part in parts:
                    record = read_part(part["type"], part["data"] or b"", position_bytes)
                    self._apply(transaction, part["type"], record)
        else:
            self._apply(transaction, transaction.kind, transaction.record)
        self.zxid = max(self.zxid, transaction.zxid)

    def _apply(self, of: Transaction, kind: int, record: Value) -> None:
        if kind in _CREATES:
            self._create(of, kind, record)
        elif kind in _DELETES:
            self._delete(record["path"], of.zxid)
        elif kind in _CHANGES:
            self._change(of, kind, record)
        elif kind == z.CLOSE_SESSION:
            for path in sorted({*(record["paths"] or ()), *self._by_owner.pop(of.session, ())}):
                self._delete(path, of.zxid)

    def _change(self, of: Transaction, kind: int, record: Value) -> None:
        path = _key(record["path"])
        node = self._taken(path)
        if node is not None:
            if kind == z.SET_ACL:
                node.set_acl(record["version"])
            else:
                node.set_data(record["data"], record["version"], of.zxid, of.time_ms)
            self._put_back(path, node)

    def _create(self, of: Transaction, kind: int, record: Value) -> None:
        path = record["path"]
        above = _key(parent_path(path))
        parent = self._taken(above)
        if parent is None:
            return
        parent.count_child(record["parentCVersion"], of.zxid)
        self._put_back(above, parent)
        if path not in self.nodes:
            self.add(path, new_node(record["data"], of.zxid, of.time_ms, _owner(of, kind, record)))

    def _delete(self, path: str, zxid: int) -> None:
        if self._drop(path) is None:
            return
        above = _key(parent_path(path))
        parent = self._taken(above)
        if parent is not None:
            parent.lose_child(zxid)
            self._put_back(above, parent)


def _key(path: str) -> str:
    return "" if path == "/" else path


def _owner(of: Transaction, kind: int, record: Value) -> int:
    if kind == z.CREATE_CONTAINER:
        return _CONTAINER_OWNER
    if kind == z.CREATE_TTL:
        return int(record["ttl"]) | (_TTL_MASK << 56) - _UINT64
    return of.session if record["ephemeral"] else 0


def _is_ephemeral(owner: int) -> bool:
    """Whether an owner is a session. 0 is nobody; containers and nodes with a time to live have marks."""
    return owner not in (0, _CONTAINER_OWNER) and (owner >> 56) & 0xFF != _TTL_MASK


def _digest(path: str, node: FileNode) -> int:
    return 0 if path.startswith(_WITHOUT_DIGEST) else node.digest(path)


class ReadTree:
    """The nodes that outlive their sessions, as `tree_form` reads them, below a chroot."""

    def __init__(self, nodes: Mapping[str, FileNode], chroot: str = "") -> None:
        self._chroot = chroot
        self._nodes = nodes
        self._children: dict[str, list[str]] = defaultdict(list)
        for path in nodes:
            if path:
                parent, _, name = path.rpartition("/")
                self._children[parent].append(name)

    def children(self, path: str) -> list[str]:
        """The names of the node's children. Raises NoNodeError."""
        key = self._chroot + path
        if key not in self._nodes:
            raise NoNodeError(f"no node {key}", path=key)
        return sorted(
            name for name in self._children[key] if not _is_ephemeral(self._nodes[f"{key}/{name}"].owner)
        )

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Nodes; None for those that do not exist, or that belong to a session."""
        return [self._node(self._chroot + path) for path in paths]

    def _node(self, path: str) -> Node | None:
        node = self._nodes.get(path)
        if node is None or _is_ephemeral(node.owner):
            return None
        czxid, mzxid, ctime_ms, version = node.order
        return Node(node.data, NodeStat(version, czxid, mzxid, ctime_ms))

    def chroots(self) -> Iterator[str]:
        """The paths below which a Kafka cluster has its tree."""
        for path in sorted(self._nodes):
            if path.endswith("/brokers/topics"):
                yield path.removesuffix("/brokers/topics")


def require_root(tree: FileTree, file: str) -> None:
    """Raises FormatError if a tree without its root was read."""
    if "" not in tree.nodes:
        raise FormatError("the snapshot has no root node", file=file, cure="use an earlier snapshot")
