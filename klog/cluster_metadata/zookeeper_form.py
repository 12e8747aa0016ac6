"""Reads a cluster's metadata from the data directory of a ZooKeeper server that does not run.

Rules: ZooKeeper's `FileTxnSnapLog`, `FileSnap` and `FileTxnLog`. The latest valid snapshot counts, and all
transactions after it. A transaction that was not written to its end is ignored, as at ZooKeeper's start.
"""

from __future__ import annotations

import io
import os
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from klog.cluster_metadata import tree_form
from klog.cluster_metadata.forms import OnProblem, Reading, raise_problem
from klog.cluster_metadata.zookeeper_tree import FileTree, ReadTree, require_root
from klog.formats import binary, compression
from klog.formats import zookeeper_files as z
from klog.formats.errors import CorruptRecordError, KlogError, StorageError, placed
from klog.formats.values import Value
from klog.formats.zookeeper_reading import (
    Transaction,
    is_end_of_log,
    new_node,
    read_entry,
    read_nodes,
    read_transaction,
)
from klog.metadata.paths import BROKER_IDS
from klog.storage.files.files import list_directory, read_whole

FORM: Final = "ZooKeeper's data directory"
_VERSION_2: Final = "version-2"
_SNAPPY: Final = ".snappy"
_SNAPSHOT: Final = re.compile(r"snapshot\.([0-9a-f]{1,16})(\.gz|\.snappy)?")
_LOG: Final = re.compile(r"log\.([0-9a-f]{1,16})")
_EPOCH_BITS: Final = 32


class _File(NamedTuple):
    zxid: int
    path: str


class _Snapshot(NamedTuple):
    tree: FileTree
    digest: Value | None  # of the snapshot


def is_zookeeper_directory(path: str) -> bool:
    """Whether a directory has snapshots or transaction logs of ZooKeeper, itself or in `version-2`."""
    return bool(_files(path, _SNAPSHOT) or _files(path, _LOG))


def read(
    directories: Sequence[str], on_problem: OnProblem = raise_problem, chroot: str | None = None
) -> Reading:
    """The cluster in a data directory, and in the directory of its logs if that is another one.

    If there are several clusters, `chroot` is that of one (empty: none). Raises StorageError (no valid
    snapshot, no or more than one Kafka cluster), `FormatError`.
    """
    notes: list[str] = []
    tree, snapshot = read_tree(directories, notes)
    chosen = _chosen(list(ReadTree(tree.nodes).chroots()), chroot, directories[-1])
    reading = tree_form.read(ReadTree(tree.nodes, chosen), FORM, on_problem)
    below = f", below {chosen}" if chosen else ""
    detail = f"{snapshot}, and the transactions up to zxid 0x{tree.zxid:x}{below}"
    notes += _registered(tree, chosen)
    return reading._replace(notes=(*notes, *reading.notes), details=(detail,))


def _registered(tree: FileTree, chroot: str) -> Iterator[str]:
    """Says which brokers had a session at the end of the files. They may run, if ZooKeeper does."""
    above = f"{chroot}{BROKER_IDS}/"
    ids = sorted(path.removeprefix(above) for path in tree.nodes if path.startswith(above))
    if ids:
        yield (
            f"brokers were registered when these files ended: {', '.join(ids)}; before a conversion stop"
            " those that run, then ZooKeeper"
        )


def _chosen(chroots: Sequence[str], chroot: str | None, directory: str) -> str:
    """The chroot of the cluster that is meant."""
    if chroot is None and len(chroots) < 2:
        return chroots[0] if chroots else ""
    if chroot is not None and chroot in chroots:
        return chroot
    clusters = f"{len(chroots)} Kafka cluster{'' if len(chroots) == 1 else 's'}"
    place = directory.rstrip("/")
    named = ", ".join(f"{place}{each or '//'}" for each in chroots)
    raise StorageError(
        f"holds the metadata of {clusters}"
        + ("" if chroot is None else f", none of them at {chroot or '/'}"),
        file=directory,
        cure=f"name the one to read: {named}" if chroots else "check the path",
    )


def read_tree(directories: Sequence[str], notes: list[str]) -> tuple[FileTree, str]:
    """The tree after all transactions, and the snapshot that it began with. Adds to `notes`.

    If the last digest differs, all is read again with each digest, which takes longer, to say since when.
    """
    for each in (False, True):
        found: list[str] = []
        digests = _Digests(found, each=each)
        tree, snapshot = _read_tree(directories, found, digests)
        if digests.is_last_right(tree):
            break
    notes += found
    return tree, snapshot


def _read_tree(directories: Sequence[str], notes: list[str], digests: _Digests) -> tuple[FileTree, str]:
    snapshots = sorted(file for each in directories for file in _files(each, _SNAPSHOT))
    logs = sorted(file for each in directories for file in _files(each, _LOG))
    snapshot, path = _latest_snapshot(snapshots, logs, notes, directories[0], digests.each)
    digests.of_snapshot = snapshot.digest
    _replay(snapshot.tree, logs, notes, digests)
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
    snapshots: Sequence[_File], logs: Sequence[_File], notes: list[str], directory: str, counts: bool
) -> tuple[_Snapshot, str]:
    for file in reversed(snapshots):
        try:
            return _read_snapshot(file, counts), file.path
        except KlogError as error:
            notes.append(f"a snapshot is not used: {error.at(file.path)}")
    if logs and logs[0].zxid == 1:
        # Nothing is missing: the logs begin with the first transaction of all.
        tree = FileTree(counts=counts)
        for path in ("", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"):
            tree.add(path, new_node(b""))
        return _Snapshot(tree, None), "no snapshot"
    raise StorageError(
        "has no valid snapshot of ZooKeeper", file=directory, cure="read the data directory of another server"
    )


def _read_snapshot(file: _File, counts: bool) -> _Snapshot:
    """The tree of a snapshot. Raises `KlogError` if it is not whole."""
    data = _uncompressed(file.path)
    stream = io.BytesIO(data)
    tree = FileTree(counts=counts)
    binary.parse_next(z.SnapshotHead, stream, z.SNAPSHOT_TITLE)
    stream.seek(read_nodes(data, stream.tell(), tree.add))
    end_of_nodes = stream.tell() + len(z.END_OF_NODES)
    end = binary.parse_next(z.SnapshotEnd, stream, z.SNAPSHOT_TITLE)
    _check_seals(data, end_of_nodes, end)
    tree.zxid = file.zxid
    require_root(tree, file.path)
    return _Snapshot(tree, end["treeDigest"])


def _uncompressed(path: str) -> bytes:
    """The bytes of a file by its name, as with ZooKeeper's `snapshot.compression.method`."""
    data = read_whole(path)
    if not path.endswith(_SNAPPY):
        return data
    return compression.decompress(compression.SNAPPY, data, limit_bytes=sys.maxsize)


def _check_seals(data: bytes, position: int, end: Value) -> None:
    """Checks the Adler-32 of the bytes before each seal; the first one is at `position`."""
    digest_bytes, zxid_bytes = z.SnapshotDigest.sizeof(), z.LastZxid.sizeof()
    for part, size_bytes in ((end, 0), (end["treeDigest"], digest_bytes), (end["lastZxid"], zxid_bytes)):
        if part is None:
            continue
        position += size_bytes
        computed = zlib.adler32(memoryview(data)[:position])
        if part["checksum"] != computed:
            raise CorruptRecordError(
                f"{z.SNAPSHOT_TITLE}: its checksum is {part['checksum']}, its bytes give {computed}",
                position_bytes=position,
            )
        position += z.SEAL_BYTES


def _replay(tree: FileTree, logs: Sequence[_File], notes: list[str], digests: _Digests) -> None:
    """Does the transactions of the logs after the snapshot."""
    begin = tree.zxid
    digests.after(tree, begin, None)
    first = max((index for index, file in enumerate(logs) if file.zxid <= begin), default=0)
    for file in logs[first:]:
        for transaction, position in _transactions(file.path, notes):
            zxid = transaction.zxid
            if zxid <= begin:
                continue
            if zxid > tree.zxid + 1 and zxid >> _EPOCH_BITS == tree.zxid >> _EPOCH_BITS:
                notes.append(
                    f"{file.path} goes on with zxid 0x{zxid:x} after 0x{tree.zxid:x}: a log may be missing"
                )
            with placed(file.path, position):
                tree.apply(transaction, position)
            digests.after(tree, zxid, transaction.digest)


def _transactions(path: str, notes: list[str]) -> Iterator[tuple[Transaction, int]]:
    """The transactions of a log with their positions. Raises `FormatError`."""
    data = read_whole(path)
    if len(data) < z.LogHead.sizeof():
        if data:
            notes.append(f"{path} was not written to the end of its head")
        return
    stream = io.BytesIO(data)
    with placed(path):
        binary.parse_next(z.LogHead, stream, z.LOG_TITLE)
        position = stream.tell()
        while not is_end_of_log(data, position):
            entry = read_entry(data, position)
            if entry is None:
                notes.append(f"{path} at byte {position}: the last transaction was not written to its end")
                return
            found, end = entry
            yield read_transaction(found, position), position
            position = end


class _Digests:
    """Compares the digests that ZooKeeper has written with the tree's: each one, or the last one only.

    A snapshot is fuzzy up to the transaction of its own digest, so no other one is compared before. The first
    that differs is noted, if each is compared.
    """

    def __init__(self, notes: list[str], *, each: bool) -> None:
        self.each = each
        self.of_snapshot: Value | None = None
        self._notes = notes
        self._last: int | None = None
        self._has_some = False
        self._is_over = False

    def after(self, tree: FileTree, zxid: int, of_transaction: int | None) -> None:
        """Is told of the snapshot, and of each transaction."""
        expected = self._last = self._expected(zxid, of_transaction)
        self._has_some |= expected is not None
        if self.each and expected is not None and not self._is_over and expected != tree.digest:
            self._is_over = True
            self._notes.append(
                f"after zxid 0x{zxid:x} the digest of the tree is {tree.digest}, ZooKeeper's was {expected}:"
                " a file was damaged, or the files are not of one server"
            )

    def is_last_right(self, tree: FileTree) -> bool:
        """Whether the last digest is that of the tree, so that none before can differ."""
        return not self._has_some or tree.digest == self._last

    def _expected(self, zxid: int, of_transaction: int | None) -> int | None:
        pending = self.of_snapshot
        if pending is None:
            return of_transaction
        if zxid < pending["zxid"]:
            return None
        self.of_snapshot = None
        is_its = zxid == pending["zxid"] and pending["digestVersion"] == z.DIGEST_VERSION
        return int(pending["digest"]) if is_its else of_transaction
