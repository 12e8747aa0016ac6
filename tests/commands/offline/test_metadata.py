"""`klog metadata` recognises where metadata is, shows it, compares it and checks it. It changes nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from klog.cluster_metadata import json_form, tree_form, tree_output
from klog.metadata.embedded import FILE_NAME, EmbeddedStore
from klog.metadata.zookeeper import ZooKeeperStore
from tests.cluster_metadata.kraft_files import batch, directory
from tests.cluster_metadata.trees import live_tree
from tests.commands.running import Run, runner
from tests.corpora import FIXTURES
from tests.metadata.conftest import zookeeper  # noqa: F401 (a fixture)
from tests.peers.zookeeper import ZooKeeperServer

LOGS = FIXTURES / "k4-kraft" / "logs"
ZOOKEEPER = Path(__file__).parents[2] / "cluster_metadata" / "zookeeper-3.8"
SECRET = "stored_key="


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


@pytest.fixture
def embedded(tmp_path: Path) -> Path:
    """The log directory of a stopped klog broker, with the metadata of a live Kafka cluster."""
    (tmp_path / "klog").mkdir()
    store = EmbeddedStore(tmp_path / "klog" / FILE_NAME)
    tree_output.write(store, tree_form.read(live_tree(), "").cluster)
    store.close()
    return tmp_path / "klog"


def files(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


@pytest.mark.parametrize("output", ["table", "json"])
def test_show_hides_secrets_and_changes_nothing(klog: Run, embedded: Path, output: str) -> None:
    before = files(embedded)
    for path in (LOGS, embedded):
        shown = klog("metadata", "show", path, "-o", output)
        assert (shown.code, shown.err) == (0, "")
        assert "alice" in shown.out
        assert SECRET not in shown.out
    assert files(embedded) == before


def test_show_says_where_the_metadata_is_from(klog: Run, embedded: Path) -> None:
    assert "from klog's embedded tree" in klog("metadata", "show", embedded).out
    assert "the snapshot up to offset 96, and the log up to offset 129" in klog("metadata", "show", LOGS).out
    assert "m-one-0    -                  1  1         -" in klog("metadata", "show", LOGS).out


def test_the_files_of_a_dead_zookeeper_are_read(klog: Run) -> None:
    shown = klog("metadata", "show", ZOOKEEPER)
    assert (shown.code, shown.err) == (0, "")
    assert "from ZooKeeper's data directory" in shown.out
    assert "and the transactions up to zxid 0xd" in shown.out
    assert klog("metadata", "diff", ZOOKEEPER, ZOOKEEPER / "version-2").code == 0
    checked = klog("metadata", "check", ZOOKEEPER)
    assert (checked.code, checked.out) == (0, "5 topics, 11 partitions: no problems\n"), checked.err


def test_json_with_secrets_is_the_whole_cluster(klog: Run, embedded: Path, tmp_path: Path) -> None:
    shown = klog("metadata", "show", embedded, "-o", "json", "--secrets")
    expected = tree_output.held(tree_form.read(live_tree(), "").cluster).cluster
    assert json_form.decode(shown.out.encode()) == expected
    saved = tmp_path / "cluster.json"
    saved.write_text(shown.out)
    assert klog("metadata", "show", saved, "-o", "json", "--secrets").out == shown.out
    assert klog("metadata", "diff", saved, embedded).out == "the metadata is the same\n"


def test_secrets_are_not_for_tables(klog: Run) -> None:
    refused = klog("metadata", "show", LOGS, "--secrets")
    assert (refused.code, refused.out) == (2, "")


def test_diff_names_what_differs_and_its_code_says_whether(klog: Run, tmp_path: Path) -> None:
    content = json.loads(klog("metadata", "show", LOGS, "-o", "json").out)
    content["nextProducerId"] = 5000
    content["topics"][1]["partitions"][0]["leaderEpoch"] = 9
    saved = tmp_path / "cluster.json"
    saved.write_text(json.dumps(content))
    told = klog("metadata", "diff", LOGS, saved, "-o", "jsonl")
    assert told.code == 1
    assert [json.loads(line) for line in told.out.splitlines()] == [
        {"kind": "cluster", "name": "", "member": "nextProducerId", "a": 1000, "b": 5000},
        {"kind": "partition", "name": "m-one-0", "member": "leaderEpoch", "a": 1, "b": 9},
    ]
    assert "2 differences" in klog("metadata", "diff", LOGS, saved).out
    assert klog("metadata", "diff", LOGS, saved, "--only", "topic,config").code == 0
    assert klog("metadata", "diff", LOGS, saved, "--only", "colour").code == 2


def test_check_of_a_sound_directory_finds_nothing(klog: Run) -> None:
    told = klog("metadata", "check", LOGS)
    assert (told.code, told.err) == (0, "")
    assert told.out == f"2 topics, 15 partitions, compared with {LOGS}: no problems\n"


def test_check_compares_with_the_directories_that_are_named(klog: Run, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(LOGS, tmp_path / "logs"))
    shutil.rmtree(copy / "m-one-0")
    told = klog("metadata", "check", LOGS, "--log-dirs", copy, "-o", "jsonl")
    assert told.code == 1
    assert json.loads(told.out) == {
        "where": "m-one-0",
        "problem": "has no directory on broker 1: it would come back empty",
    }
    assert "1 problem" in klog("metadata", "check", copy).out


def test_records_of_a_later_kafka_stop_it_unless_they_are_to_be_left_out(klog: Run, tmp_path: Path) -> None:
    log = directory(tmp_path)
    (log / f"{0:020}.log").write_bytes(batch([b"\x01\x63\x00"], 0))
    refused = klog("metadata", "show", tmp_path)
    assert refused.code == 1
    assert "record at offset 0 has type 99, which klog does not know (a later Kafka wrote it" in refused.err
    shown = klog("metadata", "show", tmp_path, "--skip-unknown")
    assert shown.code == 0
    assert "(left out)" in shown.err


@pytest.mark.parametrize("source", ["empty", "nothing", "file"])
def test_what_holds_no_metadata_is_refused(klog: Run, tmp_path: Path, source: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("hello")
    refused = klog("metadata", "show", tmp_path / source)
    assert (refused.code, refused.out) == (1, "")
    assert str(tmp_path / source) in refused.err


def test_a_directory_that_a_broker_uses_is_refused(klog: Run, embedded: Path) -> None:
    from klog.storage.files.directory_lock import locked

    with locked(str(embedded)):
        refused = klog("metadata", "show", embedded)
    assert refused.code == 1
    assert "is using this directory" in refused.err


@pytest.mark.kafka
def test_a_live_zookeeper_is_read_and_stays_as_it_is(
    klog: Run,
    zookeeper: ZooKeeperServer,  # noqa: F811 (the fixture)
    tmp_path: Path,
) -> None:
    cluster = tree_output.held(tree_form.read(live_tree(), "").cluster).cluster
    store = ZooKeeperStore(f"{zookeeper.hosts}/shown", session_timeout_ms=6_000)
    tree_output.write(store, cluster)
    shown = klog("metadata", "show", f"{zookeeper.hosts}/shown", "-o", "json", "--secrets")
    assert json_form.decode(shown.out.encode()) == cluster
    refused = klog("metadata", "show", f"zookeeper://{zookeeper.hosts}/no/chroot")
    assert refused.code == 1
    assert "holds no metadata of a Kafka cluster" in refused.err
    store.close()
    store = ZooKeeperStore(zookeeper.hosts, session_timeout_ms=6_000)
    assert store.exists("/no") is None
    store.close()
