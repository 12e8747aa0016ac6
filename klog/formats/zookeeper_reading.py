"""Reads the nodes of ZooKeeper's snapshots and the transactions of its logs fast, by their definitions.

What is not as the definition says is read by the definition, which raises the error.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import construct as c

from klog.formats import binary, fixed_fields
from klog.formats import structures as s
from klog.formats import zookeeper_files as z
from klog.formats.errors import CorruptRecordError
from klog.formats.fast_readers import REFUSALS, read_all, reader, walker
from klog.formats.packed import INT32, INT64
from klog.formats.reader_source import Reader
from klog.formats.values import Value

_STAT: Final = fixed_fields.run("ZooKeeperSnapshotNode", "czxid")
_ORDER: Final = _STAT.only("czxid", "mzxid", "ctime", "version")
_CREATED: Final = _STAT.only("acl", "czxid", "mzxid", "ctime", "mtime", "ephemeralOwner", "pzxid")
_AT: Final = {name: _STAT.at(name) for name in _STAT.names}
_CREATION: Final = slice(_AT["czxid"], _AT["ctime"])
_CHANGES: Final = slice(_AT["ctime"], _AT["pzxid"])
_CHILDREN: Final = slice(_AT["pzxid"], _STAT.after("pzxid"))
_OPEN_ACL: Final = -1
_PREFIX: Final = fixed_fields.run("ZooKeeperLogEntry")
_HEAD: Final = fixed_fields.run("ZooKeeperTransactionHead")
_DIGEST: Final = fixed_fields.run("ZooKeeperTransactionDigest")
# The versions of a node are kept as they stand in the file.
_walk_nodes: Final = walker(
    s.UntilMark(
        z.END_OF_NODES,
        c.Struct(
            *(field for field in z.SnapshotNode.subcons if field.name not in _STAT.names),
            "stat" / c.Bytes(_STAT.size_bytes),
        ),
    )
)
_READERS: Final[Mapping[int, Reader]] = {
    kind: reader(definition) for kind, definition in z.RECORDS.items() if kind != z.CLOSE_SESSION
}


class FileNode:
    """The data of a node and its versions, which are kept as a snapshot has them."""

    __slots__ = ("_stat", "data")

    def __init__(self, data: bytes | None, stat: bytes) -> None:
        self.data = data
        self._stat = bytearray(stat)

    @property
    def stat(self) -> dict[str, int]:
        """The versions by their names in the definition."""
        return dict(zip(_STAT.names, _STAT.struct.unpack(self._stat), strict=True))

    @property
    def owner(self) -> int:
        """The session that owns it, or a mark of its kind; 0 of usual nodes."""
        found: int = INT64.unpack_from(self._stat, _AT["ephemeralOwner"])[0]
        return found

    @property
    def order(self) -> tuple[int, int, int, int]:
        """czxid, mzxid, ctime and version."""
        czxid, mzxid, ctime, version = _ORDER.unpack_from(self._stat)
        return czxid, mzxid, ctime, version

    def set_data(self, data: bytes | None, version: int, zxid: int, time_ms: int) -> None:
        """What a transaction does that sets the data."""
        self.data = data
        INT32.pack_into(self._stat, _AT["version"], version)
        INT64.pack_into(self._stat, _AT["mzxid"], zxid)
        INT64.pack_into(self._stat, _AT["mtime"], time_ms)

    def set_acl(self, version: int) -> None:
        """What a transaction does that sets the ACL."""
        INT32.pack_into(self._stat, _AT["aversion"], version)

    def count_child(self, cversion: int, zxid: int) -> None:
        """What the creation of a node below does. -1 is one more; a smaller number was counted already."""
        before = INT32.unpack_from(self._stat, _AT["cversion"])[0]
        after = before + 1 if cversion == -1 else cversion
        if after > before:
            INT32.pack_into(self._stat, _AT["cversion"], after)
            INT64.pack_into(self._stat, _AT["pzxid"], zxid)

    def lose_child(self, zxid: int) -> None:
        """What the deletion of a node below does."""
        before = INT64.unpack_from(self._stat, _AT["pzxid"])[0]
        INT64.pack_into(self._stat, _AT["pzxid"], max(before, zxid))

    def digest(self, path: str) -> int:
        """What it adds to the tree's digest. Rules: ZooKeeper's `DigestCalculator`."""
        crc = zlib.crc32(self.data or b"", zlib.crc32(path.encode("utf-8", "surrogateescape")))
        for part in (_CREATION, _CHILDREN, _CHANGES):
            crc = zlib.crc32(self._stat[part], crc)
        return crc


def new_node(data: bytes | None, zxid: int = 0, time_ms: int = 0, owner: int = 0) -> FileNode:
    """A node that a transaction creates."""
    stat = _CREATED.pack(_OPEN_ACL, zxid, zxid, time_ms, time_ms, owner, zxid)
    return FileNode(data, stat)


def read_nodes(data: bytes, position: int, add: Callable[[str, FileNode], None]) -> int:
    """Gives each node of a snapshot from a position on to `add`. Returns the position after the last.

    Raises `FormatError`.
    """
    for (path, value, stat), end in _walk_nodes(data, position):
        add(path, FileNode(value, stat))
        position = end
    if data.startswith(z.END_OF_NODES, position):
        return position
    stream = io.BytesIO(data)
    stream.seek(position)
    binary.parse_next(z.SnapshotNode, stream, z.SNAPSHOT_TITLE)
    raise AssertionError(f"the definition reads the node at byte {position}, its fast reader does not")


class Transaction(NamedTuple):
    """A transaction. `digest` is that of the tree after it, if it has one of the known version."""

    session: int
    zxid: int
    time_ms: int
    kind: int
    record: Value
    digest: int | None


def read_transaction(data: bytes, position: int) -> Transaction:
    """The transaction in an entry at a position of its file. Raises `FormatError`."""
    try:
        session, _, zxid, time_ms, kind = _HEAD.struct.unpack_from(data)
        record, at = _READERS[kind](data, _HEAD.size_bytes)
        if at == len(data):
            return Transaction(session, zxid, time_ms, kind, record, None)
        if at + _DIGEST.size_bytes == len(data):
            version, digest = _DIGEST.struct.unpack_from(data, at)
            known = digest if version == z.DIGEST_VERSION else None
            return Transaction(session, zxid, time_ms, kind, record, known)
    except (*REFUSALS, KeyError):
        pass
    found = z.parse_transaction(data, position)
    of_tree = found["digest"]
    known = of_tree["treeDigest"] if of_tree and of_tree["version"] == z.DIGEST_VERSION else None
    return Transaction(
        found["session"], found["zxid"], found["timeMs"], found["type"], found["record"], known
    )


def read_part(kind: int, data: bytes, position: int) -> Value:
    """The record of a part of a multi. Raises `FormatError`."""
    if kind in _READERS:
        return read_all(_READERS[kind], z.RECORDS[kind], data, z.LOG_TITLE, position)
    return z.parse_record(kind, data, position)


def read_entry(data: bytes, position: int) -> tuple[bytes, int] | None:
    """The transaction of the entry at a position of a log, and the position after the entry.

    None if the entry was not written to its end. Raises `CorruptRecordError`.
    """
    begin = position + _PREFIX.size_bytes
    if begin > len(data):
        return None
    checksum, size = _PREFIX.struct.unpack_from(data, position)
    end = begin + size
    if size <= 0 or not data.startswith(z.END_OF_ENTRY, end):
        return None
    found = data[begin:end]
    computed = zlib.adler32(found)
    if checksum != computed:
        raise CorruptRecordError(
            f"the checksum of a transaction is {checksum}, its bytes give {computed}",
            position_bytes=position,
            cure="read the data directory of another server of the ensemble",
        )
    return found, end + len(z.END_OF_ENTRY)


def is_end_of_log(data: bytes, position: int) -> bool:
    """Whether only zeros, or nothing, stand where the next entry would begin."""
    return not any(data[position : position + _PREFIX.size_bytes])
