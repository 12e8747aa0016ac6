"""The files of a ZooKeeper server say what the live server said."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import construct as c
import pytest
from hypothesis import given, settings

from klog.cluster_metadata import tree_form, tree_output, zookeeper_form
from klog.cluster_metadata.model import Cluster
from klog.cluster_metadata.zookeeper_tree import FileTree
from klog.formats import zookeeper_files as z
from klog.formats.errors import CorruptRecordError, FormatError, StorageError, UnsupportedFormatError
from klog.metadata.store import Check, Create, Delete, Operation, SetData
from klog.metadata.zookeeper import ZooKeeperStore
from tests.cluster_metadata.trees import live_tree
from tests.cluster_strategies import clusters
from tests.peers import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer

FIXTURE = Path(__file__).parent / "zookeeper-3.8"
CLUSTER = tree_output.held(tree_form.read(live_tree(), "").cluster).cluster
LATER = {"topic": "t1", "config": {"retention.ms": "5"}}


@pytest.fixture
def server(kafka3: KafkaPeer, tmp_path: Path) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path / "server", kafka3) as running:
        yield running


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURE, tmp_path / "zookeeper"))


def snapshot_of(directory: Path) -> Path:
    return max((directory / "version-2").glob("snapshot.*"))


def log_of(directory: Path) -> Path:
    return max((directory / "version-2").glob("log.*"))


def fill(store: ZooKeeperStore) -> None:
    """Transactions of every kind that Kafka makes, some of which undo others."""
    store.create("/gone", b"x")
    store.multi([SetData("/gone", b"y"), Check("/gone", 1), Delete("/gone")])
    with pytest.raises(Exception, match="/no"):
        store.multi([Create("/never", b""), Delete("/no/such/node")])
    store.create("/of-session", b"z", ephemeral=True)
    store.create("/config/changes/config_change_", b"{}", sequential=True)


def change(store: ZooKeeperStore) -> None:
    store.set("/config/topics/t1", b'{"version":1,"config":{"retention.ms":"5"}}')
    store.create("/admin/delete_topics/codecs")
    store.set("/controller_epoch", b"7")


def read(directory: Path) -> Cluster:
    return zookeeper_form.read([str(directory)]).cluster


# --- real ZooKeeper ---


@pytest.mark.kafka
def test_the_files_of_a_killed_server_say_what_it_said(server: ZooKeeperServer, tmp_path: Path) -> None:
    store = ZooKeeperStore(f"{server.hosts}/kafka", session_timeout_ms=6_000)
    tree_output.write(store, CLUSTER)
    fill(store)
    # A start writes a snapshot, so that there is one, and a log after it.
    server.kill()
    server.start()
    store.wait_connected(10_000)
    change(store)
    live = tree_form.read(store, "")
    server.kill()
    store.close()
    reading = zookeeper_form.read([str(tmp_path / "server" / "data")])
    assert reading.cluster == live.cluster
    assert reading.cluster.controller_epoch == 7
    assert reading.notes == ()


# --- files of any cluster ---


def log_file(operations: Iterable[Operation]) -> bytes:
    """A transaction log, from the first one on, that does these operations."""
    versions: dict[str, int] = {}
    data: bytes = z.LogHead.build({"magic": b"ZKLG", "version": 2, "dbid": 0})
    for zxid, each in enumerate(operations, 1):
        if isinstance(each, Create):
            kind, record = z.CREATE, {"acl": [], "ephemeral": False, "parentCVersion": -1}
        else:
            versions[each.path] = versions.get(each.path, 0) + 1
            kind, record = z.SET_DATA, {"version": versions[each.path]}
        assert isinstance(each, Create | SetData)
        head = {"session": 1, "cxid": zxid, "zxid": zxid, "timeMs": 1_000 + zxid, "type": kind}
        body = z.TransactionHead.build(head) + z.RECORDS[kind].build(
            {"path": each.path, "data": each.data, **record}
        )
        entry = {"checksum": zlib.adler32(body), "transaction": body, "end": z.END_OF_ENTRY}
        data += z.LogEntry.build(entry)
    return data + bytes(64)


@settings(max_examples=25)
@given(clusters)
def test_what_a_tree_can_hold_comes_back_equal(cluster: Cluster) -> None:
    held = tree_output.held(cluster).cluster
    with TemporaryDirectory() as directory:
        log = log_file([Create("/brokers"), *tree_output.operations(held)])
        Path(directory, "log.1").write_bytes(log)
        reading = zookeeper_form.read([directory])
    assert reading.cluster == held
    assert reading.notes == ()


# --- a fixture that real ZooKeeper 3.8.4 wrote (see its README) ---


def test_the_fixture_is_read_with_all_digests_as_zookeeper_computed_them() -> None:
    reading = zookeeper_form.read([str(FIXTURE)])
    assert reading.notes == ()
    (detail,) = reading.details
    assert detail.startswith(f"{snapshot_of(FIXTURE)}, and the transactions up to zxid 0x")
    cluster = reading.cluster
    assert cluster.deletions == {"codecs"}
    assert cluster.controller_epoch == 7
    expected = replace(
        CLUSTER,
        controller_epoch=7,
        deletions=frozenset({"codecs"}),
        configs=cluster.configs,
    )
    assert cluster == expected


def test_nodes_of_sessions_and_of_failed_multis_are_not_there() -> None:
    tree, _ = zookeeper_form.read_tree([str(FIXTURE)], [])
    assert "/kafka/never" not in tree.nodes
    assert "/kafka/gone" not in tree.nodes
    owned = [path for path in tree.nodes if path == "/kafka/of-session"]
    assert owned == ["/kafka/of-session"]  # of a session that was open when the server was killed
    from klog.cluster_metadata.zookeeper_tree import ReadTree

    assert "of-session" not in ReadTree(tree.nodes, "/kafka").children("")
    assert ReadTree(tree.nodes, "/kafka").get_many(["/of-session"]) == [None]


def test_the_log_alone_makes_the_same_tree(copy: Path) -> None:
    """All snapshots but the first, which is of an empty tree, are taken away."""
    snapshots = sorted((copy / "version-2").glob("snapshot.*"), key=lambda path: int(path.suffix[1:], 16))
    assert len(snapshots) > 1
    for path in snapshots[1:]:
        path.unlink()
    assert read(copy) == read(FIXTURE)


def test_a_damaged_snapshot_is_passed_over_for_the_one_before(copy: Path) -> None:
    path = snapshot_of(copy)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    reading = zookeeper_form.read([str(copy)])
    assert reading.cluster == read(FIXTURE)
    assert "a snapshot is not used" in reading.notes[0]
    assert str(path) in reading.notes[0]


def test_a_log_that_is_cut_anywhere_ends_with_its_last_whole_transaction(copy: Path) -> None:
    path = log_of(copy)
    data = path.read_bytes()
    whole = len(data.rstrip(b"\0"))
    before = [each.zxid for each in _states(copy, path, data[:whole])]
    last = max(before)
    for size in range(whole - 30, whole):
        path.write_bytes(data[:size] + bytes(64))
        notes: list[str] = []
        tree, _ = zookeeper_form.read_tree([str(copy)], notes)
        assert tree.zxid == last - 1
        assert len(notes) == 1
        assert "was not written to its end" in notes[0]


def _states(directory: Path, path: Path, data: bytes) -> Iterator[FileTree]:
    path.write_bytes(data)
    yield zookeeper_form.read_tree([str(directory)], [])[0]


def test_a_damaged_transaction_is_refused_with_its_position(copy: Path) -> None:
    path = log_of(copy)
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptRecordError, match="the checksum of a transaction") as caught:
        read(copy)
    assert (caught.value.file, caught.value.position_bytes) == (str(path), 16)


def test_a_tree_with_another_digest_than_zookeepers_is_noted(copy: Path) -> None:
    path = log_of(copy)

    def other_digest(transaction: c.Container) -> None:
        transaction.digest.treeDigest += 1

    path.write_bytes(_rewritten(path.read_bytes(), z.CREATE, other_digest))
    (note,) = zookeeper_form.read([str(copy)]).notes
    assert "the digest of the tree is" in note


def test_a_transaction_of_an_unknown_type_is_refused(copy: Path) -> None:
    path = log_of(copy)

    def other_type(transaction: c.Container) -> None:
        transaction.head.type = 99

    path.write_bytes(_rewritten(path.read_bytes(), z.CREATE, other_type))
    with pytest.raises(UnsupportedFormatError, match="unknown type"):
        read(copy)


def test_a_missing_log_is_noted(copy: Path) -> None:
    path = log_of(copy)

    def later(transaction: c.Container) -> None:
        transaction.head.zxid += 5

    path.write_bytes(_rewritten(path.read_bytes(), z.CREATE, later))
    assert any("a log may be missing" in note for note in zookeeper_form.read([str(copy)]).notes)


def test_files_without_a_valid_snapshot_are_refused(copy: Path) -> None:
    for path in (copy / "version-2").glob("snapshot.*"):
        path.write_bytes(path.read_bytes()[:-1])
    (copy / "version-2" / "log.1").unlink(missing_ok=True)
    for path in (copy / "version-2").glob("log.*"):
        if path != log_of(copy):
            path.unlink()
    with pytest.raises(StorageError, match="no valid snapshot"):
        read(copy)


def test_a_log_of_another_program_is_refused(copy: Path) -> None:
    log_of(copy).write_bytes(b"hello, this is no log at all")
    with pytest.raises(FormatError, match="ZooKeeper transaction log"):
        read(copy)


def _rewritten(data: bytes, kind: int, change: Callable[[c.Container], None]) -> bytes:
    """A log whose last transaction of a type is changed, with a checksum that fits."""
    entries, position = [], 16
    while any(data[position : position + 12]):
        entry = z.LogEntry.parse(data[position:])
        entries.append(entry)
        position += len(z.LogEntry.build(entry))
    for entry in reversed(entries):
        transaction = z.parse_transaction(entry.transaction, 0)
        if transaction.head.type == kind:
            change(transaction)
            body = z.TransactionHead.build(transaction.head) + z.RECORDS[kind].build(transaction.record)
            entry.transaction = body + z.TransactionDigest.build(transaction.digest)
            entry.checksum = zlib.adler32(entry.transaction)
            break
    return data[:16] + b"".join(z.LogEntry.build(entry) for entry in entries)
