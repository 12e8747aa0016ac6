"""`klog adopt` takes the metadata of a KRaft node over from its log, and klog then serves its directory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from klog.cluster_metadata import kraft_form
from klog.cluster_metadata.sources import read_source
from klog.formats import meta_properties
from klog.formats.errors import StorageError
from klog.formats.names import TopicPartition
from klog.metadata.embedded import FILE_NAME
from klog.server.startup.config_reading import read_config
from klog.server.startup.kraft_takeover import require_no_kraft
from tests.commands.running import Run, runner
from tests.corpora import FIXTURES
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


def test_serve_with_kraft_configs_makes_no_directory(klog: Run, tmp_path: Path) -> None:
    assert klog("serve", "--config", kraft_properties(tmp_path / "new"), "--quiet").code == 1
    assert not (tmp_path / "new").exists()


def test_kraft_configs_are_no_obstacle_once_the_metadata_is_taken_over(klog: Run, data: Path) -> None:
    config = kraft_properties(data)
    assert klog("adopt", "--config", config, "--yes").code == 0
    require_no_kraft(read_config(str(config), ()), str(config))
