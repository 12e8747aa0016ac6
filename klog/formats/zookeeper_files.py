"""ZooKeeper's snapshots and transaction logs (`version-2/snapshot.ZXID`, `log.ZXID`), of 3.4 to 3.9.

Rules: ZooKeeper's `FileSnap`, `SnapStream`, `FileTxnLog`, `DataTree` and its zookeeper.jute. Jute writes
numbers big-endian, and lengths of texts, bytes (-1: null) and lists as int32. A snapshot ends with the
Adler-32 of the bytes before, and the text `/`. Since 3.6 the digest of the tree follows (ZOOKEEPER-3114),
since 3.9 a zxid, each with a checksum and a `/` of its own. An entry of a log has the Adler-32 of its
transaction, and ends with `B`. Zeros fill the rest of a log.

No checksum is computed here. `zookeeper_reading` does that, and reads many nodes and transactions fast.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Final

import construct as c

from klog.formats import binary
from klog.formats import primitives as p
from klog.formats import structures as s
from klog.formats.errors import UnsupportedFormatError
from klog.formats.values import Bytes, Value

SNAPSHOT_TITLE: Final = "ZooKeeper snapshot"
LOG_TITLE: Final = "ZooKeeper transaction log"
DIGEST_VERSION: Final = 2
CREATE, DELETE, SET_DATA, SET_ACL, CHECK, MULTI = 1, 2, 5, 7, 13, 14
CREATE_2, RECONFIGURE, CREATE_CONTAINER, DELETE_CONTAINER, CREATE_TTL = 15, 16, 19, 20, 21
CREATE_SESSION, CLOSE_SESSION, ERROR = -10, -11, -1

_TEXT: Final = p.SizedString(c.Int32sb)
_BYTES: Final = p.SizedBytes(c.Int32sb, null=True)
_ACL: Final = p.SizedArray(
    c.Int32sb,
    c.Struct(
        "perms" / c.Int32sb * "bits: 1 read, 2 write, 4 create, 8 delete, 16 admin",
        "scheme" / _TEXT * "world, sasl, digest, ip, ...",
        "id" / _TEXT * "within the scheme",
    ),
    null=True,
)

# --- snapshots ---

_END_OF_TREE: Final = "/"
END_OF_NODES: Final = _TEXT.build(_END_OF_TREE)
"""What stands in place of the path of a node after the last one."""

_SNAPSHOT_HEAD: Final = (
    "magic" / c.Const(b"ZKSN") * "ZKSN",
    "version" / c.Const(2, c.Int32sb) * "2",
    "dbid" / c.Int64sb * "-1",
    "sessions"
    / p.SizedArray(
        c.Int32sb,
        c.Struct("id" / c.Int64sb * "of the session", "timeoutMs" / c.Int32sb * "of the session"),
    )
    * "that were open",
    "acls"
    / p.SizedArray(c.Int32sb, c.Struct("key" / c.Int64sb * "that nodes refer to", "acl" / _ACL * "the list"))
    * "access control lists of nodes",
)
SnapshotHead: Final = c.Struct(*_SNAPSHOT_HEAD)
SnapshotNode: Final = c.Struct(
    "path" / _TEXT * "of the node; empty for the root",
    "data" / _BYTES * "of the node",
    "acl" / c.Int64sb * "key of its list; -1: open to all",
    "czxid" / c.Int64sb * "transaction that created it",
    "mzxid" / c.Int64sb * "transaction that set its data",
    "ctime" / c.Int64sb * "ms",
    "mtime" / c.Int64sb * "ms",
    "version" / c.Int32sb * "changes of its data",
    "cversion" / c.Int32sb * "children that were created",
    "aversion" / c.Int32sb * "changes of its ACL",
    "ephemeralOwner" / c.Int64sb * "session, 0 for none",
    "pzxid" / c.Int64sb * "transaction that changed its children",
)
_SEAL: Final = (
    "checksum" / c.Int64sb * "Adler-32 of all bytes before",
    "end" / c.Const(_END_OF_TREE, _TEXT) * "/",
)
Seal: Final = c.Struct(*_SEAL)
SEAL_BYTES: Final = len(Seal.build({"checksum": 0}))
SnapshotDigest: Final = c.Struct(
    "zxid" / c.Int64sb * "transaction after which it was computed",
    "digestVersion" / c.Int32sb * "2",
    "digest" / c.Int64sb * "of the whole tree",
)
LastZxid: Final = c.Struct("zxid" / c.Int64sb * "of the last transaction")


def _sealed(fields: c.Struct) -> s.AtEnd:
    return s.AtEnd(c.Struct(*fields.subcons, *_SEAL), fields.sizeof() + SEAL_BYTES)


_SNAPSHOT_END: Final = (
    "endOfNodes" / c.Const(_END_OF_TREE, _TEXT) * "/ in place of a path",
    *_SEAL,
    "treeDigest" / _sealed(SnapshotDigest) * "since 3.6, unless zookeeper.digest.enabled is false",
    "lastZxid" / _sealed(LastZxid) * "since 3.9",
)
SnapshotEnd: Final = c.Struct(*_SNAPSHOT_END)
Snapshot: Final = c.Struct(
    *_SNAPSHOT_HEAD,
    "nodes" / s.UntilMark(END_OF_NODES, SnapshotNode) * "those above before those below",
    *_SNAPSHOT_END,
)

# --- transaction logs ---

END_OF_ENTRY: Final = b"B"
_LOG_HEAD: Final = (
    "magic" / c.Const(b"ZKLG") * "ZKLG",
    "version" / c.Const(2, c.Int32sb) * "2",
    "dbid" / c.Int64sb * "0",
)
LogHead: Final = c.Struct(*_LOG_HEAD)
_TRANSACTION_HEAD: Final = (
    "session" / c.Int64sb * "that asked for it",
    "cxid" / c.Int32sb * "number of the request in its session",
    "zxid" / c.Int64sb * "of the transaction",
    "timeMs" / c.Int64sb * "of the leader",
    "type" / c.Int32sb * "of the record",
)
TransactionHead: Final = c.Struct(*_TRANSACTION_HEAD)
TransactionDigest: Final = c.Struct(
    "version" / c.Int32sb * "2", "treeDigest" / c.Int64sb * "of the tree after the transaction"
)
_DIGEST_BYTES: Final = int(TransactionDigest.sizeof())
_DIGEST_START: Final = DIGEST_VERSION.to_bytes(4, "big")


class _ClosedPaths(s.AtEnd):
    """They are not there before 3.6, or with zookeeper.closeSessionTxn.enabled=false."""

    def is_there(self, stream: io.BytesIO) -> bool:
        left = bytes(stream.getbuffer()[stream.tell() :])
        return len(left) > 0 and (len(left) != _DIGEST_BYTES or not left.startswith(_DIGEST_START))


_PATH: Final = "path" / _TEXT * "of the node"
_DATA: Final = "data" / _BYTES * "of the node"
_ACLS: Final = "acl" / _ACL * "of the node"
_PARENT: Final = "parentCVersion" / c.Int32sb * "of the node above, after it; -1: one more"
_VERSION: Final = "version" / c.Int32sb * "after it"
_CREATE: Final = c.Struct(_PATH, _DATA, _ACLS, "ephemeral" / p.BoolField() * "owned by the session", _PARENT)
_CREATE_CONTAINER: Final = c.Struct(_PATH, _DATA, _ACLS, _PARENT)
_ONLY_PATH: Final = c.Struct(_PATH)
_SET_DATA: Final = c.Struct(_PATH, _DATA, _VERSION)
RECORDS: Final[Mapping[int, c.Construct]] = {
    CREATE: _CREATE,
    CREATE_2: _CREATE,
    CREATE_CONTAINER: _CREATE_CONTAINER,
    CREATE_TTL: c.Struct(_PATH, _DATA, _ACLS, _PARENT, "ttl" / c.Int64sb * "ms"),
    DELETE: _ONLY_PATH,
    DELETE_CONTAINER: _ONLY_PATH,
    SET_DATA: _SET_DATA,
    RECONFIGURE: _SET_DATA,
    SET_ACL: c.Struct(_PATH, _ACLS, _VERSION),
    CHECK: c.Struct(_PATH, _VERSION),
    CREATE_SESSION: c.Struct("timeoutMs" / c.Int32sb * "of the session"),
    CLOSE_SESSION: c.Struct(
        "paths" / _ClosedPaths(p.SizedArray(c.Int32sb, _TEXT), 1) * "of its nodes, since 3.6"
    ),
    ERROR: c.Struct("error" / c.Int32sb * "why the request failed; nothing was changed"),
    MULTI: c.Struct(
        "transactions"
        / p.SizedArray(
            c.Int32sb,
            c.Struct("type" / c.Int32sb * "of the record", "data" / _BYTES * "the record"),
            null=True,
        )
        * "done together"
    ),
}
"""The records of transactions by type."""
_NAMES: Final = {
    CREATE: "create",
    CREATE_2: "create2",
    CREATE_CONTAINER: "createContainer",
    CREATE_TTL: "createTTL",
    DELETE: "delete",
    DELETE_CONTAINER: "deleteContainer",
    SET_DATA: "setData",
    RECONFIGURE: "reconfig",
    SET_ACL: "setACL",
    CHECK: "check",
    CREATE_SESSION: "createSession",
    CLOSE_SESSION: "closeSession",
    ERROR: "error",
    MULTI: "multi",
}


class _RecordOfType(c.Construct):  # type: ignore[misc]
    """The record of the transaction's type."""

    def __init__(self) -> None:
        super().__init__()
        self.type_name = "fields of the type"
        self.size_text = "n"
        self.fields = dict(RECORDS)
        self.cases = {f"{kind} {_NAMES[kind]}": fields for kind, fields in RECORDS.items()}

    def _of(self, context: c.Container, path: str) -> c.Construct:
        found = self.fields.get(context["type"])
        if found is None:
            raise c.SwitchError(f"unknown type {context['type']} of a transaction", path=path)
        return found

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        return self._of(context, path)._parsereport(stream, context, path)

    def _build(self, obj: Value, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        return self._of(context, path)._build(obj, stream, context, path)


Transaction: Final = c.Struct(
    *_TRANSACTION_HEAD,
    "record" / _RecordOfType() * "what was done",
    "digest" / s.AtEnd(TransactionDigest, _DIGEST_BYTES) * "since 3.6, unless digests are disabled",
)
LogEntry: Final = c.Struct(
    "checksum" / c.Int64sb * "Adler-32 of the transaction",
    "transaction" / s.Sized(c.Int32sb, Transaction),
    "end" / c.Const(END_OF_ENTRY) * "B",
)
ENTRY_PREFIX_BYTES: Final = int(c.Int64sb.sizeof() + c.Int32sb.sizeof())
Log: Final = c.Struct(
    *_LOG_HEAD,
    "entries" / s.UntilMark(bytes(ENTRY_PREFIX_BYTES), LogEntry) * "up to zeros, or the end",
    "padding" / c.GreedyBytes * "zeros",
)

parse_snapshot, build_snapshot = binary.whole(Snapshot, SNAPSHOT_TITLE)
# A log whose last transaction was not written to its end is none.
parse_log, build_log = binary.whole(Log, LOG_TITLE)


def parse_transaction(data: Bytes, position_bytes: int = 0) -> c.Container:
    """The transaction of an entry. Raises `FormatError`; UnsupportedFormatError for an unknown type."""
    try:
        transaction: c.Container = binary.parse_all(Transaction, data, LOG_TITLE, position_bytes)
    except UnsupportedFormatError as error:
        error.cure = _NEWER
        raise
    return transaction


def parse_record(kind: int, data: Bytes, position_bytes: int) -> c.Container:
    """The record of a part of a multi. Raises as `parse_transaction`."""
    if kind not in RECORDS:
        raise UnsupportedFormatError(
            f"{LOG_TITLE}: unknown type {kind} of a transaction", position_bytes=position_bytes, cure=_NEWER
        )
    record: c.Container = binary.parse_all(RECORDS[kind], data, LOG_TITLE, position_bytes)
    return record


_NEWER: Final = "written by a newer ZooKeeper than this klog knows"
