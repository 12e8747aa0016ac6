"""ZooKeeper's tree as its files make it: nodes of a snapshot, and transactions that change them.

Rules: ZooKeeper's `DataTree.processTxn` and `DigestCalculator`. A snapshot is fuzzy: transactions after its
zxid may be in it already, and are done again. The digest is the sum of the CRC-32s of all nodes that are not
below /zookeeper.
"""

from __future__ import annotations

import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klog.formats import zookeeper_files as z
from klog.formats.errors import FormatError
from klog.formats.values import Value
from klog.metadata.errors import NoNodeError
from klog.metadata.store import Node, NodeStat, parent_path

_STAT: Final = struct.Struct(">qqqqqiiiq")  # what the digest has of a node's versions; no file has it so
_UINT64: Final = 1 << 64
_INT64_SIGN: Final = 1 << 63
_WITHOUT_DIGEST: Final = "/zookeeper/"
_CONTAINER_OWNER: Final = -(1 << 63)
_TTL_MASK: Final = 0xFF
_CREATES: Final = frozenset({z.CREATE, z.CREATE_2, z.CREATE_CONTAINER, z.CREATE_TTL})


@dataclass(slots=True)
class TreeNode:
    """A node. Its digest is part of the tree's sum, so a change goes through `FileTree`."""

    data: bytes | None
    czxid: int = 0
    mzxid: int = 0
    ctime_ms: int = 0
    mtime_ms: int = 0
    version: int = 0
    cversion: int = 0
    aversion: int = 0
    owner: int = 0
    pzxid: int = 0


class FileTree:
    """The nodes by path; the root's is empty."""

    def __init__(self) -> None:
        self.nodes: dict[str, TreeNode] = {}
        self.zxid = 0
        self._sum = 0
        self._by_owner: dict[int, set[str]] = defaultdict(set)

    @property
    def digest(self) -> int:
        """The digest of the tree as ZooKeeper writes it, a signed number of 64 bits."""
        total = self._sum % _UINT64
        return total - _UINT64 if total >= _INT64_SIGN else total

    def add(self, path: str, node: TreeNode) -> None:
        """Puts a node in, in place of the one that is there."""
        self._drop(path)
        self.nodes[path] = node
        self._sum += _node_digest(path, node)
        if _is_ephemeral(node.owner):
            self._by_owner[node.owner].add(path)

    def _drop(self, path: str) -> TreeNode | None:
        node = self.nodes.pop(path, None)
        if node is not None:
            self._sum -= _node_digest(path, node)
            self._by_owner[node.owner].discard(path)
        return node

    def _change(self, path: str, change: Callable[[TreeNode], None]) -> None:
        """Changes a node. A missing one was deleted later, which the snapshot has already."""
        node = self.nodes.get(path)
        if node is not None:
            self._sum -= _node_digest(path, node)
            change(node)
            self._sum += _node_digest(path, node)

    def apply(self, transaction: Value, position_bytes: int) -> None:
        """Does a transaction. Raises `FormatError` for a part of a multi that cannot be read."""
        head, record = transaction["head"], transaction["record"]
        if head["type"] == z.MULTI:
            parts = record["transactions"] or ()
            if not any(part["type"] == z.ERROR for part in parts):
                for part in parts:
                    self._apply(
                        head, part["type"], z.parse_record(part["type"], part["data"] or b"", position_bytes)
                    )
        else:
            self._apply(head, head["type"], record)
        self.zxid = max(self.zxid, head["zxid"])

    def _apply(self, head: Value, kind: int, record: Value) -> None:
        zxid, time_ms = head["zxid"], head["timeMs"]
        if kind in _CREATES:
            self._create(head, kind, record)
        elif kind in (z.DELETE, z.DELETE_CONTAINER):
            self._delete(record["path"], zxid)
        elif kind in (z.SET_DATA, z.RECONFIGURE):

            def set_data(node: TreeNode) -> None:
                node.data, node.version = record["data"], record["version"]
                node.mzxid, node.mtime_ms = zxid, time_ms

            self._change(_key(record["path"]), set_data)
        elif kind == z.SET_ACL:
            self._change(_key(record["path"]), lambda node: setattr(node, "aversion", record["version"]))
        elif kind == z.CLOSE_SESSION:
            listed = record.get("paths") or ()
            for path in sorted({*listed, *self._by_owner.pop(head["session"], ())}):
                self._delete(path, zxid)

    def _create(self, head: Value, kind: int, record: Value) -> None:
        path, zxid, time_ms = record["path"], head["zxid"], head["timeMs"]
        is_there = path in self.nodes
        counted = record["parentCVersion"]

        def count_child(parent: TreeNode) -> None:
            cversion = parent.cversion + 1 if counted == -1 else counted
            if cversion > parent.cversion:
                parent.cversion, parent.pzxid = cversion, zxid

        self._change(_key(parent_path(path)), count_child)
        if is_there or _key(parent_path(path)) not in self.nodes:
            return
        owner = _owner(head, kind, record)
        self.add(path, TreeNode(record["data"], zxid, zxid, time_ms, time_ms, owner=owner, pzxid=zxid))

    def _delete(self, path: str, zxid: int) -> None:
        if self._drop(path) is not None:
            self._change(
                _key(parent_path(path)), lambda parent: setattr(parent, "pzxid", max(parent.pzxid, zxid))
            )


def _key(path: str) -> str:
    return "" if path == "/" else path


def _owner(head: Value, kind: int, record: Value) -> int:
    if kind == z.CREATE_CONTAINER:
        return _CONTAINER_OWNER
    if kind == z.CREATE_TTL:
        return int(record["ttl"]) | (_TTL_MASK << 56) - _UINT64
    return int(head["session"]) if record["ephemeral"] else 0


def _is_ephemeral(owner: int) -> bool:
    """Whether an owner is a session: containers and nodes with a time to live have marks in its place."""
    return owner not in (0, _CONTAINER_OWNER) and (owner >> 56) & 0xFF != _TTL_MASK


def _node_digest(path: str, node: TreeNode) -> int:
    if path.startswith(_WITHOUT_DIGEST):
        return 0
    stat = _STAT.pack(
        node.czxid,
        node.mzxid,
        node.pzxid,
        node.ctime_ms,
        node.mtime_ms,
        node.version,
        node.cversion,
        node.aversion,
        node.owner,
    )
    crc = zlib.crc32(path.encode("utf-8", "surrogateescape"))
    return zlib.crc32(stat, zlib.crc32(node.data or b"", crc))


class ReadTree:
    """The nodes that outlive their sessions, as `tree_form` reads them, below a chroot."""

    def __init__(self, nodes: Mapping[str, TreeNode], chroot: str = "") -> None:
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
        return Node(node.data, NodeStat(node.version, node.czxid, node.mzxid, node.ctime_ms, 0))

    def chroots(self) -> Iterator[str]:
        """The paths below which a Kafka cluster has its tree."""
        for path in sorted(self._nodes):
            if path.endswith("/brokers/topics"):
                yield path.removesuffix("/brokers/topics")


def require_root(tree: FileTree, file: str) -> None:
    """Raises FormatError if a tree without its root was read."""
    if "" not in tree.nodes:
        raise FormatError("the snapshot has no root node", file=file, cure="use an earlier snapshot")
