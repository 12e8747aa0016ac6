"""ZooKeeper's snapshots and transaction logs (`version-2/snapshot.ZXID`, `log.ZXID`), of 3.4 to 3.9.

Rules: ZooKeeper's `FileSnap`, `SnapStream`, `FileTxnLog`, `DataTree` and its zookeeper.jute. Jute writes
numbers big-endian, and lengths of texts, bytes (-1: null) and lists as int32. A snapshot ends with the
Adler-32 of the bytes before, and the text `/`. Since 3.6 the digest of the tree follows, with a checksum of
its own (ZOOKEEPER-3114). An entry of a log has the Adler-32 of its transaction, and ends with `B`. Zeros fill
the rest of a log.
"""

from __future__ import annotations

import io
from typing import Final

import construct as c

from klog.formats import binary
from klog.formats import primitives as p
from klog.formats.errors import UnsupportedFormatError
from klog.formats.values import Bytes, Value

SNAPSHOT_TITLE: Final = "ZooKeeper snapshot"
LOG_TITLE: Final = "ZooKeeper transaction log"
DIGEST_VERSION: Final = 2
END_OF_TREE: Final = "/"
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

SnapshotHead: Final = c.Struct(
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
SnapshotPath: Final = c.Struct(
    "path" / _TEXT * "of the node that follows; empty for the root, `/` after the last"
)
SnapshotNode: Final = c.Struct(
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
Seal: Final = c.Struct(
    "checksum" / c.Int64sb * "Adler-32 of all bytes before",
    "end" / c.Const(END_OF_TREE, _TEXT) * "/",
)
SnapshotDigest: Final = c.Struct(
    "zxid" / c.Int64sb * "transaction after which it was computed",
    "digestVersion" / c.Int32sb * "2",
    "digest" / c.Int64sb * "of the whole tree",
)

LogHead: Final = c.Struct(
    "magic" / c.Const(b"ZKLG") * "ZKLG", "version" / c.Const(2, c.Int32sb) * "2", "dbid" / c.Int64sb * "0"
)
LogEntry: Final = c.Struct(
    "checksum" / c.Int64sb * "Adler-32 of the transaction; 0 with no bytes: the log ends here",
    "transaction" / _BYTES * "header, record, and since 3.6 a digest",
    "end" / c.Int8ub * "B (0x42)",
)
END_OF_ENTRY: Final = 0x42
TransactionHead: Final = c.Struct(
    "session" / c.Int64sb * "that asked for it",
    "cxid" / c.Int32sb * "number of the request in its session",
    "zxid" / c.Int64sb * "of the transaction",
    "timeMs" / c.Int64sb * "of the leader",
    "type" / c.Int32sb * "of the record",
)
TransactionDigest: Final = c.Struct(
    "version" / c.Int32sb * "2", "treeDigest" / c.Int64sb * "of the tree after the transaction"
)

_PATH: Final = "path" / _TEXT * "of the node"
_DATA: Final = "data" / _BYTES * "of the node"
_ACLS: Final = "acl" / _ACL * "of the node"
_PARENT: Final = "parentCVersion" / c.Int32sb * "of the node above, after it; -1: one more"
_VERSION: Final = "version" / c.Int32sb * "after it"
_CREATE: Final = c.Struct(_PATH, _DATA, _ACLS, "ephemeral" / p.BoolField() * "owned by the session", _PARENT)
_CREATE_CONTAINER: Final = c.Struct(_PATH, _DATA, _ACLS, _PARENT)
_ONLY_PATH: Final = c.Struct(_PATH)
_SET_DATA: Final = c.Struct(_PATH, _DATA, _VERSION)
_NOTHING: Final = c.Struct()
RECORDS: Final[dict[int, c.Construct]] = {
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
"""The records of transactions by type. Closing a session has the paths of its nodes since 3.6."""
_CLOSED_PATHS: Final = c.Struct(
    "paths" / p.SizedArray(c.Int32sb, _TEXT, null=True) * "of the session's nodes"
)
_DIGEST_BYTES: Final = 12
_DIGEST_START: Final = DIGEST_VERSION.to_bytes(4, "big")


def parse_transaction(data: Bytes, position_bytes: int) -> c.Container:
    """Head, record (by the type), and the digest of the tree after it (None before 3.6).

    Raises `FormatError`; UnsupportedFormatError for an unknown type.
    """
    stream = io.BytesIO(data)
    head = binary.parse_next(TransactionHead, stream, LOG_TITLE, position_bytes)
    record = _parse_record(head["type"], stream, position_bytes)
    digest = None
    if p.remaining_bytes(stream) >= _DIGEST_BYTES:
        digest = binary.parse_next(TransactionDigest, stream, LOG_TITLE, position_bytes)
    binary.require_end(stream, LOG_TITLE, position_bytes)
    return c.Container(head=head, record=record, digest=digest)


def parse_record(kind: int, data: Bytes, position_bytes: int) -> Value:
    """The record of a part of a multi. Raises `FormatError`."""
    return _parse_record(kind, io.BytesIO(data), position_bytes)


def _parse_record(kind: int, stream: io.BytesIO, position_bytes: int) -> Value:
    if kind == CLOSE_SESSION:
        definition = _CLOSED_PATHS if _has_closed_paths(stream) else _NOTHING
    else:
        found = RECORDS.get(kind)
        if found is None:
            raise UnsupportedFormatError(
                f"{LOG_TITLE}: a transaction has the unknown type {kind}",
                position_bytes=position_bytes,
                cure="written by a newer ZooKeeper than this klog knows",
            )
        definition = found
    return binary.parse_next(definition, stream, LOG_TITLE, position_bytes)


def _has_closed_paths(stream: io.BytesIO) -> bool:
    """Whether the paths follow. There are none before 3.6 or with zookeeper.closeSessionTxn.enabled=false."""
    left = stream.getbuffer()[stream.tell() :]
    return len(left) > 0 and (len(left) != _DIGEST_BYTES or left[:4] != _DIGEST_START)
