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

from klog.cluster_metadata import sources, tree_form, tree_output, zookeeper_form
from klog.cluster_metadata.model import Cluster
from klog.cluster_metadata.zookeeper_tree import FileTree
from klog.formats import compression
from klog.formats import zookeeper_files as z
from klog.formats.errors import CorruptRecordError, FormatError, StorageError, UnsupportedFormatError
from klog.metadata.store import Check, Create, Delete, Operation, SetData
from klog.metadata.zookeeper import ZooKeeperStore
from tests.cluster_metadata.trees import live_tree, log_entry, log_file, tree_operations
from tests.cluster_strategies import clusters
from tests.peers import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer

FIXTURE = Path(__file__).parent / "zookeeper-3.8"
CLUSTER = tree_output.held(tree_form.read(live_tree(), "").cluster).cluster
LATER = {"topic": "t1", "config": {"retention.ms": "5"}}


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
@pytest.mark.parametrize("compressed", ["", ".gz", ".snappy"])
def test_the_files_of_a_killed_server_say_what_it_said(
    kafka3: KafkaPeer, tmp_path: Path, compressed: str
) -> None:
    flags = (f"-Dzookeeper.snapshot.compression.method={compressed[1:]}",)
    with ZooKeeperServer(tmp_path / "server", kafka3, jvm_flags=flags) as server:
        live = _live_before_its_kill(server)
    reading = zookeeper_form.read([str(tmp_path / "server" / "data")])
    assert reading.cluster == live
    assert reading.cluster.controller_epoch == 7
    assert reading.notes == ()
    assert f"{compressed}, and the transactions up to" in reading.details[0]


def _live_before_its_kill(server: ZooKeeperServer) -> Cluster:
    store = ZooKeeperStore(f"{server.hosts}/kafka", session_timeout_ms=6_000)
    tree_output.write(store, CLUSTER)
    fill(store)
    # A start writes a snapshot, so that there is one, and a log after it.
    server.kill()
    server.start()
    store.wait_connected(10_000)
    change(store)
    live = tree_form.read(store, "").cluster
    server.kill()
    store.close()
    return live


# --- files of any cluster ---


def _below(operations: Iterable[Operation], chroot: str) -> Iterator[Operation]:
    return (replace(each, path=chroot + each.path) for each in operations)


def test_brokers_that_were_registered_at_the_end_are_noted(tmp_path: Path) -> None:
    made = tree_operations(Cluster("zsiXsM12QjO3SJygbMVE2g"))
    registered = [Create(f"/brokers/ids/{broker}", b"{}", ephemeral=True) for broker in (2, 1)]
    (tmp_path / "log.1").write_bytes(log_file([*made, *registered]))
    reading = zookeeper_form.read([str(tmp_path)])
    assert reading.cluster.brokers == {}
    assert "brokers were registered when these files ended: 1, 2; before" in reading.notes[0]
    (tmp_path / "log.1").write_bytes(log_file(made))
    assert zookeeper_form.read([str(tmp_path)]).notes == ()


def test_of_several_clusters_one_is_named(tmp_path: Path) -> None:
    clusters = {
        "": "zsiXsM12QjO3SJygbMVE2g",
        "/a": "_sEEsoO3R8KWMpPrG_sTow",
        "/b/c": "iuvGZtffTPmwwhc6461t6Q",
    }
    operations: list[Operation] = [Create("/b")]
    for chroot, cluster_id in clusters.items():
        made = tree_operations(Cluster(cluster_id))
        operations += [Create(chroot)] if chroot else []
        operations += _below(made, chroot)
    (tmp_path / "log.1").write_bytes(log_file(operations))
    with pytest.raises(StorageError, match="holds the metadata of 3 Kafka clusters") as caught:
        sources.read_source(str(tmp_path))
    assert caught.value.cure == f"name the one to read: {tmp_path}/a, {tmp_path}/b/c, {tmp_path}//"
    for chroot, cluster_id in clusters.items():
        place = f"{tmp_path}{chroot or '//'}"
        assert sources.read_source(place).cluster.cluster_id == cluster_id
        assert sources.read_source(f"{tmp_path},{place}").cluster.cluster_id == cluster_id
    with pytest.raises(StorageError, match="3 Kafka clusters, none of them at /b"):
        sources.read_source(f"{tmp_path}/b")


@settings(max_examples=25)
@given(clusters)
def test_what_a_tree_can_hold_comes_back_equal(cluster: Cluster) -> None:
    held = tree_output.held(cluster).cluster
    with TemporaryDirectory() as directory:
        log = log_file(tree_operations(held))
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


def test_a_tree_with_another_digest_than_zookeepers_is_noted_with_the_first_transaction(copy: Path) -> None:
    path = log_of(copy)
    created: list[int] = []

    def other_data(transaction: c.Container) -> None:
        transaction.record.data = b"other"
        created.append(transaction.zxid)

    path.write_bytes(_rewritten(path.read_bytes(), z.CREATE, other_data))
    (note,) = zookeeper_form.read([str(copy)]).notes
    assert note.startswith(f"after zxid 0x{created[0]:x} the digest of the tree is")


def test_a_transaction_of_an_unknown_type_is_refused_with_its_position(copy: Path) -> None:
    path = log_of(copy)
    log = z.parse_log(path.read_bytes())
    first, *_ = (each.transaction for each in log.entries)
    body = z.TransactionHead.build({**first, "type": 99}) + b"later"
    path.write_bytes(z.LogHead.build(log) + log_entry(body))
    with pytest.raises(UnsupportedFormatError, match="unknown type 99") as caught:
        read(copy)
    assert caught.value.file == str(path)
    assert caught.value.position_bytes is not None
    assert caught.value.cure == "written by a newer ZooKeeper than this klog knows"


def test_a_missing_log_is_noted(copy: Path) -> None:
    path = log_of(copy)

    def later(transaction: c.Container) -> None:
        transaction.zxid += 5

    path.write_bytes(_rewritten(path.read_bytes(), z.CREATE, later))
    assert any("a log may be missing" in note for note in zookeeper_form.read([str(copy)]).notes)


def test_the_zxid_at_the_end_of_a_snapshot_of_zookeeper_3_9_has_a_checksum_of_its_own(copy: Path) -> None:
    path = snapshot_of(copy)
    data = path.read_bytes()
    zxid = data + z.LastZxid.build({"zxid": 10})
    sealed = zxid + z.Seal.build({"checksum": zlib.adler32(zxid)})
    path.write_bytes(sealed)
    assert zookeeper_form.read([str(copy)]).notes == ()
    path.write_bytes(zxid + z.Seal.build({"checksum": 1}))
    assert "its checksum is 1" in zookeeper_form.read([str(copy)]).notes[0]


@pytest.mark.parametrize(("suffix", "codec"), [("gz", compression.GZIP), ("snappy", compression.SNAPPY)])
def test_a_compressed_snapshot_is_read_and_a_damaged_one_is_passed_over(
    copy: Path, suffix: str, codec: int
) -> None:
    path = snapshot_of(copy)
    data = bytearray(compression.compress(codec, path.read_bytes()))
    path.unlink()
    compressed = path.with_name(f"{path.name}.{suffix}")
    compressed.write_bytes(data)
    reading = zookeeper_form.read([str(copy)])
    assert (reading.cluster, reading.notes) == (read(FIXTURE), ())
    assert reading.details[0].startswith(str(compressed))
    data[len(data) // 2] ^= 1
    compressed.write_bytes(data)
    assert "a snapshot is not used" in zookeeper_form.read([str(copy)]).notes[0]


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
    log = z.parse_log(data)
    change([each.transaction for each in log.entries if each.transaction.type == kind][-1])
    return bytes(z.LogHead.build(log)) + b"".join(
        log_entry(z.Transaction.build(each.transaction)) for each in log.entries
    )
