"""`klog adopt` takes the metadata of a KRaft node over from its log, and klog then serves its directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from klog.cluster_metadata import kraft_form
from klog.cluster_metadata.sources import read_source
from klog.formats import meta_properties
from klog.formats.errors import StorageError
from klog.formats.names import TopicPartition
from klog.metadata.embedded import FILE_NAME, EmbeddedStore
from klog.metadata.zookeeper import ZooKeeperStore
from klog.server.adoption_run import run_adoption
from klog.server.startup.config_reading import read_config
from klog.server.startup.kraft_configs import require_no_kraft
from tests.children import killed_at
from tests.cluster_metadata.kraft_files import batch, directory, metadata
from tests.commands.running import Run, runner
from tests.corpora import FIXTURES
from tests.metadata.conftest import zookeeper  # noqa: F401 (a fixture)
from tests.peers.zookeeper import ZooKeeperServer
from tests.server.test_broker import started, write

LOGS = FIXTURES / "k4-kraft" / "logs"


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return Path(shutil.copytree(LOGS, tmp_path / "logs"))


def files(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def test_topics_configs_users_and_quotas_are_taken_over(klog: Run, data: Path) -> None:
    before = files(data)
    done = klog("adopt", data, "--yes", "-o", "broker.id=1")
    assert done.code == 0
    assert done.out == "from the KRaft metadata log: 2 topics with 15 partitions taken over\n"
    assert "not taken over: features and metadata versions: ZooKeeper's brokers finalize none\n" in done.err
    old, new = kraft_form.read([str(data)]).cluster, read_source(str(data)).cluster
    assert new.cluster_id == old.cluster_id
    assert {name: each.topic_id for name, each in new.topics.items()} == {
        name: each.topic_id for name, each in old.topics.items()
    }
    assert (new.configs, new.acls, new.scram) == (old.configs, old.acls, old.scram)
    assert (new.quotas, new.next_producer_id) == (old.quotas, old.next_producer_id)
    after = files(data)
    assert after["meta.properties.kraft"] == before["meta.properties"]
    identity = meta_properties.parse(after["meta.properties"])
    assert (identity.version, identity.node_id, identity.cluster_id) == (0, 1, old.cluster_id)
    changed = {name for name in before if after.get(name) != before[name]}
    assert changed == {"meta.properties"}


def test_eligible_leaders_become_the_isr_so_that_a_broker_can_lead(klog: Run, data: Path) -> None:
    # The only broker was stopped cleanly, so no partition has an ISR in the metadata log.
    assert kraft_form.read([str(data)]).cluster.topics["m-one"].partitions[0].eligible_leaders == (1,)
    klog("adopt", data, "--yes", "-o", "broker.id=1")
    with started(data, broker_id="1") as broker:
        write(broker, TopicPartition("m-one", 0), [b"k"], b"v")


def test_a_dry_run_says_what_would_be_and_changes_nothing(klog: Run, data: Path) -> None:
    before = files(data)
    dry = klog("adopt", data, "--dry-run", "-o", "broker.id=1")
    assert dry.code == 0
    assert dry.out == "from the KRaft metadata log: 2 topics with 15 partitions would be taken over\n"
    assert files(data) == before


def test_another_id_is_refused_before_anything_is_written(klog: Run, data: Path) -> None:
    refused = klog("adopt", data, "--yes", "-o", "broker.id=7")
    assert refused.code == 2
    assert "belongs to node 1, broker.id is 7" in refused.err
    assert (data / "meta.properties").read_bytes() == (LOGS / "meta.properties").read_bytes()
    assert not (data / "meta.properties.kraft").exists()


def test_a_directory_without_its_metadata_log_is_refused(klog: Run, data: Path, tmp_path: Path) -> None:
    (data / "__cluster_metadata-0").rename(tmp_path / "__cluster_metadata-0")
    (data / "bootstrap.checkpoint").unlink()
    refused = klog("adopt", data, "--yes", "-o", "broker.id=1")
    assert refused.code == 1
    assert "its metadata log is not in log.dirs" in refused.err
    done = klog("adopt", data, "--yes", "-o", "broker.id=1", "-o", f"metadata.log.dir={tmp_path}")
    assert (done.code, "2 topics with 15 partitions taken over" in done.out) == (0, True)


def test_a_broker_says_that_adopt_takes_the_metadata_over(data: Path) -> None:
    with pytest.raises(StorageError, match="belongs to a KRaft node") as caught, started(data, broker_id="1"):
        pass
    assert "'klog adopt' takes its metadata over" in str(caught.value)


def test_a_directory_whose_start_without_adopt_failed_is_taken_over(klog: Run, data: Path) -> None:
    with pytest.raises(StorageError), started(data, broker_id="1"):
        pass
    assert (data / FILE_NAME).exists()
    assert klog("adopt", data, "--yes", "-o", "broker.id=1").code == 0


def kraft_properties(data: Path, roles: str = "broker,controller") -> Path:
    path = data.parent / "server.properties"
    path.write_text(
        f"process.roles={roles}\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:19093\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\ncontroller.listener.names=CONTROLLER\n"
        f"log.dirs={data}\n"
    )
    return path


@pytest.mark.parametrize(
    ("roles", "kind"),
    [
        ("broker,controller", "a combined KRaft node (broker and controller)"),
        ("broker", "a KRaft broker"),
        ("controller", "a KRaft controller"),
    ],
)
def test_serve_says_what_kraft_configs_are_and_touches_nothing(
    klog: Run, data: Path, roles: str, kind: str
) -> None:
    before = files(data)
    refused = klog("serve", "--config", kraft_properties(data, roles), "--quiet")
    assert refused.code == 1
    assert refused.err == (
        f"klog: {data.parent}/server.properties: these are the configs of {kind}, node 1, and klog has no"
        " KRaft (stop the node; then 'klog adopt' with the same options takes its metadata over)\n"
    )
    assert files(data) == before


def test_what_a_kraft_nodes_configs_are_is_said_before_values_that_only_kafka_4_knows(
    klog: Run, data: Path
) -> None:
    config = kraft_properties(data)
    with config.open("a") as file:
        file.write("group.coordinator.rebalance.protocols=classic,consumer,streams,share\n")
    refused = klog("serve", "--config", config, "--quiet")
    assert (refused.code, "these are the configs of a combined KRaft node" in refused.err) == (1, True)
    done = klog("adopt", "--config", config, "--yes")
    assert done.code == 0, done.err
    named = "a config of the KRaft node is left out: Invalid value classic,consumer,streams,share"
    assert done.err.count(named) == 1
    served = klog("serve", "--config", config, "--quiet")
    assert (served.code, "group.coordinator.rebalance.protocols" in served.err) == (2, True)


def test_an_invalid_value_of_another_broker_is_an_error(klog: Run, data: Path, tmp_path: Path) -> None:
    config = tmp_path / "zk.properties"
    config.write_text(f"broker.id=1\nlog.dirs={data}\ngroup.coordinator.rebalance.protocols=streams\n")
    for command in ("serve", "adopt"):
        assert "Invalid value streams" in klog(command, "--config", config).err


def test_serve_with_kraft_configs_makes_no_directory(klog: Run, tmp_path: Path) -> None:
    assert klog("serve", "--config", kraft_properties(tmp_path / "new"), "--quiet").code == 1
    assert not (tmp_path / "new").exists()


def test_kraft_configs_are_no_obstacle_once_the_metadata_is_taken_over(klog: Run, data: Path) -> None:
    config = kraft_properties(data)
    assert klog("adopt", "--config", config, "--yes").code == 0
    require_no_kraft(read_config(str(config), ()), str(config))


def test_a_dry_run_says_what_zookeeper_would_get_and_changes_nothing(
    klog: Run,
    data: Path,
    zookeeper: ZooKeeperServer,  # noqa: F811
) -> None:
    before = files(data)
    target = ("-o", "broker.id=1", "-o", f"zookeeper.connect={zookeeper.hosts}/dry")
    dry = klog("adopt", data, "--dry-run", *target)
    assert dry.code == 0
    assert dry.out == "from the KRaft metadata log: 2 topics with 15 partitions would be taken over\n"
    assert files(data) == before
    assert read_tree(zookeeper, "/dry") == {}
    assert klog("adopt", data, "--yes", *target).code == 0
    taken = read_source(f"{zookeeper.hosts}/dry").cluster
    assert set(taken.topics) == {"m-many", "m-one"}


def read_tree(server: ZooKeeperServer, path: str) -> dict[str, bytes | None]:
    """All nodes with something in them below a path."""
    store = ZooKeeperStore(server.hosts)
    try:
        found: dict[str, bytes | None] = {}
        above = [path] if store.exists(path) else []
        while above:
            at = above.pop()
            above += [f"{at}/{name}" for name in store.children(at)]
            node = store.get_many([at])[0]
            if node is not None and node.data:
                found[at] = node.data
        return found
    finally:
        store.close()


def test_a_dry_run_says_that_zookeeper_is_not_empty(
    klog: Run,
    data: Path,
    zookeeper: ZooKeeperServer,  # noqa: F811
) -> None:
    store = ZooKeeperStore(f"{zookeeper.hosts}/full")
    store.create("/config/users/u", b"x", make_parents=True)
    store.close()
    target = ("-o", "broker.id=1", "-o", f"zookeeper.connect={zookeeper.hosts}/full")
    for option in ("--dry-run", "--yes"):
        refused = klog("adopt", data, option, *target)
        assert (refused.code, "the metadata tree is not empty" in refused.err) == (1, True)
    assert (data / "meta.properties").read_bytes() == (LOGS / "meta.properties").read_bytes()


def test_log_directories_that_disagree_are_decided_by_the_quorums_rule(
    klog: Run, data: Path, tmp_path: Path
) -> None:
    """A second log directory has an older copy of the metadata log, as after a move of metadata.log.dir."""
    second = tmp_path / "second"
    second.mkdir()
    shutil.copy(data / "meta.properties", second)
    shutil.move(data / "m-one-0", second)
    cut_after_snapshot(Path(shutil.copytree(data / "__cluster_metadata-0", second / "__cluster_metadata-0")))
    done = klog("adopt", second, data, "--yes", "-o", "broker.id=1")
    assert done.code == 0
    assert f"{second} ends at offset 96 in epoch 1, {data} at offset 129" in done.err
    assert "the latter counts, as in an election of the quorum" in done.err
    for each in (data, second):
        assert meta_properties.parse((each / "meta.properties").read_bytes()).version == 0
        assert (each / "meta.properties.kraft").exists()


def cut_after_snapshot(log: Path) -> None:
    """Leaves the latest snapshot only: the end of a follower that has just loaded it."""
    for each in log.iterdir():
        if not each.name.startswith("00000000000000000096-"):
            each.unlink()


def test_a_follower_is_behind_the_controllers_that_are_named(klog: Run, data: Path, tmp_path: Path) -> None:
    controller = tmp_path / "controller"
    controller.mkdir()
    shutil.copytree(data / "__cluster_metadata-0", controller / "__cluster_metadata-0")
    cut_after_snapshot(data / "__cluster_metadata-0")
    places = f"metadata.log.dir={data},{controller}"
    done = klog("adopt", data, "--yes", "-o", "broker.id=1", "-o", places)
    assert (done.code, f"{data} ends at offset 96 in epoch 1" in done.err) == (0, True)


_HOLD = (
    "import sys; from klog.storage.files.directory_lock import locked\n"
    "with locked(sys.argv[1]): print('held', flush=True); sys.stdin.read()"
)


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Another process has the directory's lock, as a node that runs."""
    command = [sys.executable, "-c", _HOLD, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        try:
            yield
        finally:
            holder.communicate()


@pytest.mark.parametrize("option", ["--dry-run", "--yes"])
def test_a_controller_that_runs_is_refused(klog: Run, data: Path, tmp_path: Path, option: str) -> None:
    controller = tmp_path / "controller"
    controller.mkdir()
    shutil.copy(data / "meta.properties", controller)
    shutil.move(data / "__cluster_metadata-0", controller)
    with held(controller):
        refused = klog("adopt", data, option, "-o", "broker.id=1", "-o", f"metadata.log.dir={controller}")
    assert (refused.code, refused.err.startswith(f"klog: {controller}")) == (1, True)
    assert "process" in refused.err
    assert not (data / "meta.properties.kraft").exists()


def with_records(path: Path, *values: bytes) -> Path:
    """A KRaft directory of node 1 with these metadata records after the first ones."""
    log = directory(path)
    data = batch([metadata(12, name="metadata.version", featureLevel=27), *values], 0)
    (log / "00000000000000000000.log").write_bytes(data)
    return path


UNKNOWN = bytes([1, 99, 0, 0])  # frame version 1, type 99, version 0, no tagged fields
TOPIC_ID = "ey5g-FnqTD-kdOop3hS1Qw"


def test_records_of_a_later_kafka_are_refused_unless_they_are_to_be_skipped(
    klog: Run, tmp_path: Path
) -> None:
    data = with_records(tmp_path / "logs", UNKNOWN, metadata(2, name="t", topicId=TOPIC_ID))
    before = files(data)
    refused = klog("adopt", data, "--yes", "-o", "broker.id=1")
    assert (refused.code, "offset 1 has type 99, which klog does not know" in refused.err) == (1, True)
    assert "meta.properties.kraft" not in files(data)
    assert files(data)["meta.properties"] == before["meta.properties"]
    done = klog("adopt", data, "--yes", "--skip-unknown", "-o", "broker.id=1")
    assert (done.code, done.err.count("type 99")) == (0, 1)
    assert set(read_source(str(data)).cluster.topics) == {"t"}


def test_topics_with_the_same_id_are_refused(klog: Run, tmp_path: Path) -> None:
    records = [metadata(2, name=name, topicId=TOPIC_ID) for name in ("a", "b")]
    refused = klog("adopt", with_records(tmp_path / "logs", *records), "--yes", "-o", "broker.id=1")
    assert (refused.code, f"topics a and b have the same id, {TOPIC_ID}" in refused.err) == (1, True)


_WRITES = ((os, "replace"), (shutil, "copy2"), (EmbeddedStore, "multi_many"))


def test_a_kill_at_any_moment_can_be_repeated(data: Path, tmp_path: Path) -> None:
    whole = Path(shutil.copytree(data, tmp_path / "whole"))
    adopt_in(whole)
    expected = read_source(str(whole)).cluster
    step, was_killed = 0, True
    while was_killed:
        step += 1
        path = Path(shutil.copytree(data, tmp_path / f"killed-{step}"))
        was_killed = killed_at(step, _WRITES, partial(adopt_in, path))
        if was_killed:
            adopt_in(path)
        assert read_source(str(path)).cluster == expected
        assert (path / "meta.properties.kraft").read_bytes() == (LOGS / "meta.properties").read_bytes()
        assert meta_properties.parse((path / "meta.properties").read_bytes()).version == 0
        assert not [*path.glob("*.tmp")]
        shutil.rmtree(path)
    assert step > 4


def adopt_in(path: Path, *options: str) -> None:
    config = read_config(None, [f"log.dirs={path}", "broker.id=1", *options])
    run_adoption(config, dry_run=False, allow_missing=False)


def test_a_kill_at_any_moment_can_be_repeated_with_zookeeper(
    data: Path,
    tmp_path: Path,
    zookeeper: ZooKeeperServer,  # noqa: F811
) -> None:
    writes = (
        (os, "replace"),
        (shutil, "copy2"),
        *((ZooKeeperStore, name) for name in ("create", "multi", "multi_many", "set")),
        (ZooKeeperStore, "_send_multi"),
    )
    expected = kraft_form.read([str(data)]).cluster
    step, was_killed = 0, True
    while was_killed:
        step += 1
        path = Path(shutil.copytree(data, tmp_path / f"killed-{step}"))
        target = f"{zookeeper.hosts}/killed-{step}"
        adopt_there = partial(adopt_in, path, f"zookeeper.connect={target}")
        was_killed = killed_at(step, writes, adopt_there)
        if was_killed:
            adopt_there()
        found = read_source(target).cluster
        assert (found.cluster_id, found.configs) == (expected.cluster_id, expected.configs)
        assert {name: each.topic_id for name, each in found.topics.items()} == {
            name: each.topic_id for name, each in expected.topics.items()
        }
        assert (path / "meta.properties.kraft").read_bytes() == (LOGS / "meta.properties").read_bytes()
        assert meta_properties.parse((path / "meta.properties").read_bytes()).version == 0
        shutil.rmtree(path)
    assert step > 8
