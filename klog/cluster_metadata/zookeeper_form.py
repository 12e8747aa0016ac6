"""Reads a cluster's metadata from the data directory of a ZooKeeper server that does not run.

Rules: ZooKeeper's `FileTxnSnapLog`, `FileSnap` and `FileTxnLog`. The latest valid snapshot counts, and all
transactions after it. A transaction that was not written to its end is ignored, as at ZooKeeper's start.
"""

from __future__ import annotations

import io
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from klog.cluster_metadata import tree_form
from klog.cluster_metadata.forms import OnProblem, Reading, raise_problem
from klog.cluster_metadata.zookeeper_tree import FileTree, ReadTree, TreeNode, require_root
from klog.formats import binary
from klog.formats import primitives as p
from klog.formats import zookeeper_files as z
from klog.formats.errors import (
    CorruptRecordError,
    FormatError,
    KlogError,
    StorageError,
    UnsupportedFormatError,
)
from klog.formats.values import Value
from klog.storage.files.files import list_directory, read_whole

FORM: Final = "ZooKeeper's data directory"
_VERSION_2: Final = "version-2"
_SNAPSHOT: Final = re.compile(r"snapshot\.([0-9a-f]{1,16})(\.gz|\.snappy)?")
_LOG: Final = re.compile(r"log\.([0-9a-f]{1,16})")
_EPOCH_BITS: Final = 32
_LOG_HEAD_BYTES: Final = 16
_ENTRY_HEAD_BYTES: Final = 12


class _File(NamedTuple):
    zxid: int
    path: str


class _Snapshot(NamedTuple):
    tree: FileTree
    digest: Value | None  # of the snapshot


def is_zookeeper_directory(path: str) -> bool:
    """Whether a directory has snapshots or transaction logs of ZooKeeper, itself or in `version-2`."""
    return bool(_files(path, _SNAPSHOT) or _files(path, _LOG))


def read(directories: Sequence[str], on_problem: OnProblem = raise_problem) -> Reading:
    """The cluster in a data directory, and in the directory of its logs if that is another one.

    Raises StorageError (no valid snapshot, more than one Kafka cluster), `FormatError`.
    """
    notes: list[str] = []
    tree, snapshot = read_tree(directories, notes)
    found = ReadTree(tree.nodes)
    chroots = list(found.chroots())
    if len(chroots) > 1:
        named = ", ".join(each or "/" for each in chroots)
        raise StorageError(
            f"holds the metadata of {len(chroots)} Kafka clusters: {named}",
            file=directories[0],
            cure="klog reads a directory with one; start ZooKeeper on a copy and name the chroot",
        )
    reading = tree_form.read(ReadTree(tree.nodes, *chroots), FORM, on_problem)
    detail = f"{snapshot}, and the transactions up to zxid 0x{tree.zxid:x}"
    return reading._replace(notes=(*notes, *reading.notes), details=(detail,))


def read_tree(directories: Sequence[str], notes: list[str]) -> tuple[FileTree, str]:
    """The tree after all transactions, and the snapshot that it began with. Adds to `notes`."""
    snapshots = sorted(file for each in directories for file in _files(each, _SNAPSHOT))
    logs = sorted(file for each in directories for file in _files(each, _LOG))
    snapshot, path = _latest_snapshot(snapshots, logs, notes, directories[0])
    _replay(snapshot, logs, notes)
    return snapshot.tree, path


def _files(directory: str, name: re.Pattern[str]) -> list[_File]:
    inner = os.path.join(directory, _VERSION_2)
    place = inner if os.path.isdir(inner) else directory
    found = []
    for entry in list_directory(place) if os.path.isdir(place) else ():
        match = name.fullmatch(entry.name)
        if match is not None:
            found.append(_File(int(match[1], 16), os.path.join(place, entry.name)))
    return found


def _latest_snapshot(
    snapshots: Sequence[_File], logs: Sequence[_File], notes: list[str], directory: str
) -> tuple[_Snapshot, str]:
    for file in reversed(snapshots):
        try:
            return _read_snapshot(file), file.path
        except KlogError as error:
            notes.append(f"a snapshot is not used: {error.at(file.path)}")
    if logs and logs[0].zxid == 1:
        # Nothing is missing: the logs begin with the first transaction of all.
        tree = FileTree()
        for path in ("", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"):
            tree.add(path, TreeNode(b""))
        return _Snapshot(tree, None), "no snapshot"
    raise StorageError(
        "has no valid snapshot of ZooKeeper", file=directory, cure="read the data directory of another server"
    )


def _read_snapshot(file: _File) -> _Snapshot:
    """The tree of a snapshot. Raises `KlogError` if it is not whole."""
    if file.path.endswith(".snappy"):
        raise UnsupportedFormatError(
            "is compressed by snappy", cure="decompress it with ZooKeeper's SnapshotFormatter"
        )
    data = read_whole(file.path)
    stream = io.BytesIO(data)
    tree = FileTree()
    binary.parse_next(z.SnapshotHead, stream, z.SNAPSHOT_TITLE)
    while (path := binary.parse_next(z.SnapshotPath, stream, z.SNAPSHOT_TITLE)["path"]) != z.END_OF_TREE:
        tree.add(path, _node(binary.parse_next(z.SnapshotNode, stream, z.SNAPSHOT_TITLE)))
    _check_seal(data, stream)
    digest = None
    if p.remaining_bytes(stream):
        digest = binary.parse_next(z.SnapshotDigest, stream, z.SNAPSHOT_TITLE)
        _check_seal(data, stream)
    tree.zxid = file.zxid
    require_root(tree, file.path)
    return _Snapshot(tree, digest)


def _node(found: Value) -> TreeNode:
    return TreeNode(
        found["data"],
        found["czxid"],
        found["mzxid"],
        found["ctime"],
        found["mtime"],
        found["version"],
        found["cversion"],
        found["aversion"],
        found["ephemeralOwner"],
        found["pzxid"],
    )


def _check_seal(data: bytes, stream: io.BytesIO) -> None:
    position = stream.tell()
    seal = binary.parse_next(z.Seal, stream, z.SNAPSHOT_TITLE)
    computed = zlib.adler32(memoryview(data)[:position])
    if seal["checksum"] != computed:
        raise CorruptRecordError(
            f"{z.SNAPSHOT_TITLE}: its checksum is {seal['checksum']}, its bytes give {computed}",
            position_bytes=position,
        )


def _replay(snapshot: _Snapshot, logs: Sequence[_File], notes: list[str]) -> None:
    """Does the transactions of the logs after the snapshot."""
    tree, begin = snapshot.tree, snapshot.tree.zxid
    digests = _DigestCheck(snapshot.digest, notes)
    digests.after(tree, begin, None)
    first = max((index for index, file in enumerate(logs) if file.zxid <= begin), default=0)
    for file in logs[first:]:
        for transaction, position in _transactions(file.path, notes):
            zxid = transaction["head"]["zxid"]
            if zxid <= begin:
                continue
            if zxid > tree.zxid + 1 and zxid >> _EPOCH_BITS == tree.zxid >> _EPOCH_BITS:
                notes.append(
                    f"{file.path} goes on with zxid 0x{zxid:x} after 0x{tree.zxid:x}: a log may be missing"
                )
            try:
                tree.apply(transaction, position)
            except FormatError as error:
                raise error.at(file.path, position) from None
            digests.after(tree, zxid, transaction["digest"])


def _transactions(path: str, notes: list[str]) -> Iterator[tuple[Value, int]]:
    """The transactions of a log with their positions. Raises `FormatError`."""
    data = read_whole(path)
    if len(data) < _LOG_HEAD_BYTES:
        if data:
            notes.append(f"{path} was not written to the end of its head")
        return
    stream = io.BytesIO(data)
    try:
        binary.parse_next(z.LogHead, stream, z.LOG_TITLE)
        while True:
            position = stream.tell()
            if not any(data[position : position + _ENTRY_HEAD_BYTES]):
                return
            entry = _entry(stream)
            if entry is None:
                notes.append(f"{path} at byte {position}: the last transaction was not written to its end")
                return
            found = entry["transaction"]
            computed = zlib.adler32(found)
            if entry["checksum"] != computed:
                raise CorruptRecordError(
                    f"the checksum of a transaction is {entry['checksum']}, its bytes give {computed}",
                    position_bytes=position,
                    cure="read the data directory of another server of the ensemble",
                )
            yield z.parse_transaction(found, position), position
    except FormatError as error:
        raise error.at(path) from None


def _entry(stream: io.BytesIO) -> Value | None:
    """The next entry of a log; None if it was not written to its end."""
    try:
        entry = binary.parse_next(z.LogEntry, stream, z.LOG_TITLE)
    except FormatError:
        return None
    return entry if entry["transaction"] and entry["end"] == z.END_OF_ENTRY else None


class _DigestCheck:
    """Compares the digests that ZooKeeper has written with the tree's. The first that differs is noted.

    A snapshot is fuzzy up to the transaction of its own digest, so no other one is compared before.
    """

    def __init__(self, of_snapshot: Value | None, notes: list[str]) -> None:
        self._of_snapshot = of_snapshot
        self._notes = notes
        self._is_over = False

    def after(self, tree: FileTree, zxid: int, of_transaction: Value | None) -> None:
        """Compares after a transaction, or after the snapshot was read."""
        expected = self._expected(zxid, of_transaction)
        if expected is not None and not self._is_over and expected != tree.digest:
            self._is_over = True
            self._notes.append(
                f"after zxid 0x{zxid:x} the digest of the tree is {tree.digest}, ZooKeeper's was {expected}:"
                " a file was damaged, or the files are not of one server"
            )

    def _expected(self, zxid: int, of_transaction: Value | None) -> int | None:
        pending = self._of_snapshot
        if pending is not None and zxid >= pending["zxid"]:
            self._of_snapshot = None
            if zxid == pending["zxid"] and pending["digestVersion"] == z.DIGEST_VERSION:
                return int(pending["digest"])
        if (
            self._of_snapshot is None
            and of_transaction is not None
            and of_transaction["version"] == z.DIGEST_VERSION
        ):
            return int(of_transaction["treeDigest"])
        return None
