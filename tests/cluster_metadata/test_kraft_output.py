"""Directories that klog formats for KRaft: what is in them, what is refused, and kills at any moment."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.cluster_metadata import kraft_form, kraft_output, kraft_records, kraft_snapshot
from klog.cluster_metadata.forms import Reading
from klog.cluster_metadata.kraft_layout import Layout, Node, Role, new_id, with_directory_ids
from klog.cluster_metadata.kraft_replay import KRAFT_VERSION
from klog.cluster_metadata.model import (
    METADATA_VERSION,
    Broker,
    Cluster,
    Partition,
    SupportedVersions,
    Topic,
    Voter,
    VoterEndpoint,
)
from klog.formats import meta_properties, partition_metadata
from klog.formats.errors import StorageError, UsageError
from klog.metadata.embedded import FILE_NAME
from klog.metadata.values import LeaderAndIsr, ReplicaAssignment
from klog.storage.files.directory_lock import locked
from klog.storage.files.scratch_directory import scratch_directory
from tests.children import killed_at, run_in_child
from tests.cluster_strategies import clusters

NOW_MS = 1_700_000_000_000
CLUSTER_ID = "zsiXsM12QjO3SJygbMVE2g"
TOPIC_ID, OTHER_ID = "ey5g-FnqTD-kdOop3hS1Qw", "frJNbmKCSHu4o8p06x_jmw"
BOTH = frozenset(Role)
CLUSTER = Cluster(
    CLUSTER_ID,
    {"t": Topic(TOPIC_ID, {0: Partition(ReplicaAssignment((1, 2)), LeaderAndIsr(-1, 5, (1, 2)))})},
    features={METADATA_VERSION: 27},
    controller_epoch=3,
)


def node(path: Path, node_id: int = 1, roles: frozenset[Role] = BOTH, seed: int = 1) -> Node:
    """A node with two log directories; the metadata is in the first."""
    directories = [str(path / "a"), str(path / "b")]
    ids = with_directory_ids(directories, random.Random(seed * 10 + node_id).randbytes)
    return Node(node_id, roles, ids, directories[0])


def write(layout: Layout, cluster: Cluster = CLUSTER) -> tuple[str, ...]:
    return kraft_output.write(cluster, layout, now_ms=NOW_MS)


def read(layout: Layout) -> Reading:
    return kraft_form.read([each.metadata_directory for each in layout.nodes if each.is_controller])


def partition_directory(directory: Path, name: str = "t-0") -> Path:
    path = directory / name
    path.mkdir(parents=True)
    (path / f"{0:020}.log").write_bytes(b"")
    return path


def zookeeper_identity(directory: Path, node_id: int = 1, cluster_id: str = CLUSTER_ID) -> bytes:
    directory.mkdir(parents=True, exist_ok=True)
    data = meta_properties.build(meta_properties.create(0, node_id=node_id, cluster_id=cluster_id))
    (directory / "meta.properties").write_bytes(data)
    return data


# --- what is written ---


@given(clusters, st.integers(7, 27))
def test_what_a_metadata_version_can_hold_comes_back_equal(cluster: Cluster, level: int) -> None:
    topics = {
        name: replace(each, topic_id=each.topic_id or OTHER_ID) for name, each in cluster.topics.items()
    }
    unique = {each.topic_id: name for name, each in topics.items()}
    wanted = replace(
        cluster,
        cluster_id=CLUSTER_ID,
        topics={name: topics[name] for name in unique.values()},
        features={name: each for name, each in cluster.features.items() if each} | {METADATA_VERSION: level},
        voters={},
    )
    held, losses = kraft_records.held(wanted)
    with scratch_directory("klog-test-") as path, patch("os.fsync"):
        layout = Layout((node(Path(path)),))
        assert write(layout, wanted) == losses
        reading = read(layout)
    assert reading.cluster == held
    assert reading.notes == ()


def test_controllers_get_the_snapshot_and_brokers_fetch_it(tmp_path: Path) -> None:
    controller = node(tmp_path / "c", 7, frozenset({Role.CONTROLLER}))
    broker = node(tmp_path / "b", 1, frozenset({Role.BROKER}))
    other = node(tmp_path / "d", 8, frozenset({Role.CONTROLLER}))
    write(Layout((controller, broker, other)))
    logs = {
        path.name: sorted(each.name for each in path.glob("a/__cluster_metadata-0/*"))
        for path in tmp_path.iterdir()
    }
    name = "00000000000000000002-0000000003.checkpoint"
    assert logs == {"b": [], "c": [name], "d": [name]}
    first, second = (tmp_path / each / "a" / "__cluster_metadata-0" / name for each in "cd")
    assert first.read_bytes() == second.read_bytes()
    for each in (controller, broker, other):
        for directory, directory_id in each.directories.items():
            found = meta_properties.parse(Path(directory, "meta.properties").read_bytes())
            assert found[1:] == (1, each.node_id, CLUSTER_ID, directory_id)
    assert not list(tmp_path.rglob("*unfinished*"))


def test_voters_of_a_dynamic_quorum_are_in_the_snapshot(tmp_path: Path) -> None:
    only = node(tmp_path)
    voter = Voter(
        only.directories[only.metadata_directory],
        (VoterEndpoint("CONTROLLER", "h", 9093),),
        SupportedVersions(0, 1),
    )
    layout = Layout((only,), {1: voter})
    write(layout)
    cluster = read(layout).cluster
    assert cluster.voters == {1: voter}
    assert cluster.features == {METADATA_VERSION: 27, KRAFT_VERSION: 1}


def test_a_snapshot_is_built_piece_by_piece() -> None:
    taken: list[int] = []

    def values() -> Iterator[bytes]:
        for number in range(2_500):
            taken.append(number)
            yield b"value"

    stream = kraft_snapshot.batches(values(), 3, NOW_MS, {})
    next(stream)  # the header
    assert taken == []
    next(stream)
    assert len(taken) == 1_000
    assert len(list(stream)) == 3  # two more with records, and the footer
    assert len(taken) == 2_500


def test_the_snapshot_ends_after_the_epochs_of_brokers_which_are_offsets(tmp_path: Path) -> None:
    layout = Layout((node(tmp_path),))
    write(layout, replace(CLUSTER, brokers={1: Broker(epoch=4711, is_fenced=True)}))
    assert "the snapshot up to offset 4712" in read(layout).details[0]


def test_logs_stay_and_the_old_identity_is_kept(tmp_path: Path) -> None:
    old = zookeeper_identity(tmp_path / "a")
    log = partition_directory(tmp_path / "a")
    write(Layout((node(tmp_path),)))
    assert (tmp_path / "a" / "meta.properties.zookeeper").read_bytes() == old
    assert (log / f"{0:020}.log").exists()


def test_partitions_without_an_id_get_that_of_their_topic(tmp_path: Path) -> None:
    without, stray = partition_directory(tmp_path / "b"), partition_directory(tmp_path / "b", "x-0")
    having = partition_directory(tmp_path / "b", "t-1")
    (having / "partition.metadata").write_text("version: 0\ntopic_id: kept")
    write(Layout((node(tmp_path),)))
    assert partition_metadata.parse((without / "partition.metadata").read_bytes()).topic_id == TOPIC_ID
    assert (having / "partition.metadata").read_text() == "version: 0\ntopic_id: kept"
    assert not (stray / "partition.metadata").exists()


def test_the_directory_id_of_a_directory_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    old = meta_properties.create(0, node_id=1, cluster_id=CLUSTER_ID, directory_id=OTHER_ID)
    (tmp_path / "a" / "meta.properties").write_bytes(meta_properties.build(old))
    assert node(tmp_path).directories[str(tmp_path / "a")] == OTHER_ID


def test_klogs_own_tree_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for suffix in ("", "-wal", "-shm"):
        (tmp_path / "a" / f"{FILE_NAME}{suffix}").write_text(f"tree{suffix}")
    write(Layout((node(tmp_path),)))
    trees = {path.name: path.read_text() for path in (tmp_path / "a").glob(f"{FILE_NAME}*")}
    assert trees == {
        f"{FILE_NAME}.zookeeper": "tree",
        f"{FILE_NAME}-wal.zookeeper": "tree-wal",
        f"{FILE_NAME}-shm.zookeeper": "tree-shm",
    }


def test_an_id_is_never_one_that_kafka_reserves_or_that_looks_like_an_option() -> None:
    drawn = [bytes(16), bytes(15) + b"\x63", b"\xf8" + bytes(15), bytes(15) + b"\x64"]
    assert new_id(lambda _: drawn.pop(0)) == "AAAAAAAAAAAAAAAAAAAAZA"
    assert drawn == []


# --- what is refused ---


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        (replace(CLUSTER, cluster_id=None), "the cluster has no id"),
        (replace(CLUSTER, features={}), "no metadata.version"),
        (replace(CLUSTER, topics={"t": Topic(None, {})}), "topic t has no id"),
        (
            replace(CLUSTER, topics={"t": Topic(OTHER_ID, {}), "u": Topic(OTHER_ID, {})}),
            "topics t and u have the same id",
        ),
    ],
)
def test_a_cluster_that_lacks_something_is_refused(cluster: Cluster, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        write(Layout((node(tmp_path),)), cluster)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["__cluster_metadata-0", "bootstrap.checkpoint"])
def test_a_directory_that_was_formatted_is_refused(name: str, tmp_path: Path) -> None:
    layout = Layout((node(tmp_path),))
    (tmp_path / "b" / name).mkdir(parents=True)
    with pytest.raises(StorageError, match="has metadata of KRaft already"):
        write(layout)
    write(Layout((node(tmp_path / "other"),)))
    with pytest.raises(StorageError, match="has metadata of KRaft already"):
        write(Layout((node(tmp_path / "other"),)))


@pytest.mark.parametrize(
    ("identity", "message"),
    [((2, CLUSTER_ID), "belongs to node 2"), ((1, OTHER_ID), f"belongs to cluster {OTHER_ID}")],
)
def test_a_directory_of_another_is_refused(identity: tuple[int, str], message: str, tmp_path: Path) -> None:
    old = zookeeper_identity(tmp_path / "b", *identity)
    with pytest.raises(StorageError, match=message):
        write(Layout((node(tmp_path),)))
    assert (tmp_path / "b" / "meta.properties").read_bytes() == old


def test_a_directory_that_is_in_use_is_refused(tmp_path: Path) -> None:
    zookeeper_identity(tmp_path / "b")
    layout = Layout((node(tmp_path),))

    def hold_and_write() -> None:
        with pytest.raises(StorageError, match="holds this log directory"):
            write(layout)

    with locked(str(tmp_path / "b")):
        assert run_in_child(hold_and_write) == 0
    assert not (tmp_path / "a" / "__cluster_metadata-0").exists()


# --- kills ---

_STEPS = tuple((os, name) for name in ("replace", "unlink", "mkdir", "fsync"))


def test_a_kill_at_any_moment_can_be_repeated(tmp_path: Path) -> None:
    step, was_killed = 0, True
    while was_killed:
        step += 1
        path = tmp_path / str(step)
        zookeeper_identity(path / "1" / "a")
        log = partition_directory(path / "1" / "b")
        (path / "1" / "a" / FILE_NAME).write_text("tree")

        def layout(seed: int, path: Path = path) -> Layout:
            return Layout(tuple(node(path / str(each), each, seed=seed) for each in (1, 2)))

        was_killed = killed_at(step, _STEPS, partial(write, layout(1)))
        if was_killed:
            _require_nothing_half_written(layout(1))
            if not _is_finished(layout(1)):
                write(layout(2))
        assert read(layout(3)).cluster == CLUSTER
        assert len({each.read_bytes() for each in path.rglob("0*.checkpoint")}) == 1
        assert partition_metadata.parse((log / "partition.metadata").read_bytes()).topic_id == TOPIC_ID
        assert (path / "1" / "a" / f"{FILE_NAME}.zookeeper").read_text() == "tree"
        assert not [*path.rglob("*unfinished*"), *path.rglob("*.tmp")]
        for each in layout(3).nodes:
            for directory in each.directories:
                found = meta_properties.parse(Path(directory, "meta.properties").read_bytes())
                assert (found.version, found.node_id) == (1, each.node_id)
    assert step > 20


def _is_finished(layout: Layout) -> bool:
    """Whether the kill came after the last change."""
    first = Path(layout.nodes[0].metadata_directory)
    return not (first / kraft_output.UNFINISHED).exists() and (first / "bootstrap.checkpoint").exists()


def _require_nothing_half_written(layout: Layout) -> None:
    """Where a node would start, all controllers have the whole snapshot."""
    identities = [Path(each, "meta.properties") for each in layout.directories]
    if any(path.exists() and b"version=1" in path.read_bytes() for path in identities):
        reading = read(layout)
        assert reading.cluster == CLUSTER
        assert reading.notes == ()


def test_a_node_that_was_started_before_all_were_formatted_is_named(tmp_path: Path) -> None:
    layout = Layout((node(tmp_path),))
    write(layout)
    (tmp_path / "a" / kraft_output.UNFINISHED).write_text("")
    (tmp_path / "a" / "__cluster_metadata-0" / "quorum-state").write_text("{}")
    with pytest.raises(StorageError, match="was started on the directory before"):
        write(layout)
