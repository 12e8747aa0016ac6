"""`klog metadata convert` shows a plan, asks, and writes KRaft directories, a file, or klog's own tree."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from klog.cluster_metadata import conversion, json_form, tree_form, tree_output
from klog.cluster_metadata.conversion_plan import Plan, Step, Target
from klog.cluster_metadata.forms import Reading
from klog.cluster_metadata.model import Broker, Cluster, Partition, Topic
from klog.commands.offline.metadata_convert import ToForm
from klog.commands.offline.metadata_convert_output import show
from klog.commands.shared.cells import human_bytes
from klog.formats import meta_properties
from klog.formats.errors import UsageError
from klog.metadata.embedded import FILE_NAME, EmbeddedStore
from klog.metadata.values import LeaderAndIsr, ReplicaAssignment
from tests.cluster_metadata.trees import live_tree
from tests.commands.asking import keeps_to_the_rule
from tests.commands.offline.test_changing_locks import HOLD, held
from tests.commands.running import Run, runner
from tests.corpora import FIXTURES
from tests.peers.zookeeper import ZooKeeperServer

LOGS = FIXTURES / "k4-kraft" / "logs"
GO_ON = ("--yes", "--ignore-problems")


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The log directory of a stopped klog broker, with the metadata of a live Kafka cluster."""
    path = tmp_path / "old"
    path.mkdir()
    cluster = tree_form.read(live_tree(), "").cluster
    store = EmbeddedStore(path / FILE_NAME)
    tree_output.write(store, cluster)
    store.close()
    identity = meta_properties.create(0, node_id=1, cluster_id=cluster.cluster_id)
    (path / "meta.properties").write_bytes(meta_properties.build(identity))
    return path


def properties(path: Path, log_dirs: Path) -> Path:
    """The properties of a combined node on these directories."""
    file = path / "server.properties"
    file.write_text(
        f"process.roles=broker,controller\nnode.id=1\nlog.dirs={log_dirs}\ncontroller.quorum.voters=1@h:9093\n"
    )
    return file


def files(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def test_every_form_that_can_be_written_can_be_asked_for() -> None:
    assert [each.value for each in ToForm] == [each.value for each in conversion.PLANNERS]


def test_the_plan_is_shown_and_nothing_is_written_before_yes(klog: Run, old: Path, tmp_path: Path) -> None:
    command = [old, "--to", "kraft", "--config", properties(tmp_path, old)]
    before = files(tmp_path)
    shown = klog("metadata", "convert", *command, "--dry-run")
    assert "meta.properties.zookeeper" in shown.out
    assert "group.version=1" in shown.out
    command.append("--ignore-problems")
    rows = keeps_to_the_rule(klog, "metadata convert", command, lambda: files(tmp_path))
    assert {each["kind"] for each in rows} >= {"write", "change"}
    assert all(Path(each["where"]).exists() for each in rows if each["kind"] == "write")
    assert (old / "meta.properties.zookeeper").read_bytes() == before["old/meta.properties"]


def test_topics_users_acls_and_quotas_arrive_in_kraft(klog: Run, old: Path, tmp_path: Path) -> None:
    shutil.copytree(old, tmp_path / "source")
    done = klog("metadata", "convert", tmp_path / "source", "-c", properties(tmp_path, old), *GO_ON)
    assert done.code == 0, done.err
    compared = klog("metadata", "diff", tmp_path / "source", old, "--only", "topic,acl,credential,quota")
    assert (compared.code, compared.out) == (0, "the metadata is the same\n"), compared


def test_a_file_has_everything_and_is_for_its_owner_only(klog: Run, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    done = klog("metadata", "convert", LOGS, file, "--to", "json", "--yes")
    assert done.code == 0, done.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert klog("metadata", "diff", LOGS, file).code == 0
    assert file.read_text() == klog("metadata", "show", LOGS, "-o", "json", "--secrets").out
    hidden = tmp_path / "hidden.json"
    hidden.write_text(klog("metadata", "show", LOGS, "-o", "json").out)
    copied = klog("metadata", "convert", hidden, tmp_path / "copy.json", "--to", "json", "--yes")
    assert "all metadata, without 1 secret that the source lacks" in copied.out
    again = klog("metadata", "convert", LOGS, file, "--to", "json", "--yes")
    assert (again.code, "is there already" in again.err) == (1, True)


def test_the_source_may_be_an_option(klog: Run, tmp_path: Path) -> None:
    done = klog("metadata", "convert", "--from", LOGS, tmp_path / "c.json", "--to", "json", "--yes")
    assert done.code == 0, done.err
    assert klog("metadata", "diff", LOGS, tmp_path / "c.json").code == 0
    for words in ([], ["--from", LOGS, "a", "b"]):
        refused = klog("metadata", "convert", *words, "--to", "json")
        assert refused.code == 2
        assert "source" in refused.err or "one too many" in refused.err


def test_a_tree_of_klog_is_written_and_what_it_cannot_hold_is_said(klog: Run, tmp_path: Path) -> None:
    done = klog("metadata", "convert", LOGS, tmp_path / "new", "--to", "tree", "--yes")
    assert done.code == 0, done.err
    assert "cannot go: features and metadata versions" in done.out
    assert "from klog's embedded tree" in klog("metadata", "show", tmp_path / "new").out
    compared = klog("metadata", "diff", LOGS, tmp_path / "new", "--only", "topic,acl,quota")
    assert compared.code == 0, compared.out
    again = klog("metadata", "convert", LOGS, tmp_path / "new", "--to", "tree", "--yes")
    assert (again.code, "is there already" in again.err) == (1, True)


@pytest.mark.parametrize(
    "words", [["--to", "kraft"], ["--to", "json"], ["x", "--to", "json", "--config", "y"]]
)
def test_a_target_that_does_not_fit_the_form_is_refused(klog: Run, words: list[str]) -> None:
    done = klog("metadata", "convert", LOGS, *words, "--yes")
    assert done.code == 2


def test_a_directory_that_has_kraft_metadata_is_refused(klog: Run, tmp_path: Path) -> None:
    shutil.copytree(LOGS, tmp_path / "logs")
    before = files(tmp_path / "logs")
    done = klog("metadata", "convert", LOGS, "-c", properties(tmp_path, tmp_path / "logs"), "--yes")
    assert (done.code, "has metadata of KRaft already" in done.err) == (1, True)
    assert files(tmp_path / "logs") == before


def test_a_directory_that_a_process_uses_is_refused(klog: Run, old: Path, tmp_path: Path) -> None:
    klog("metadata", "convert", old, tmp_path / "cluster.json", "--to", "json", "--yes")
    with held(HOLD, old / ".lock"):
        done = klog(
            "metadata", "convert", tmp_path / "cluster.json", "-c", properties(tmp_path, old), "--yes"
        )
    assert done.code == 1
    assert "is using this directory (stop all nodes of the cluster first)" in done.err


@pytest.fixture
def of_kafka_0_8(tmp_path: Path) -> tuple[Path, Path]:
    """Logs that Kafka 0.8 wrote, and their metadata in a file."""
    logs = tmp_path / "logs"
    shutil.copytree(FIXTURES / "k08-codecs" / "logs", logs)
    return logs, of_partitions(tmp_path, *(each.name for each in logs.glob("*-[0-9]*")))


def of_partitions(path: Path, *names: str) -> Path:
    """A file with the metadata of partitions on broker 1."""
    topics: dict[str, Topic] = {}
    for topic, number in (name.rsplit("-", 1) for name in names):
        before = topics.get(topic, Topic(None, {})).partitions
        partition = Partition(ReplicaAssignment((1,)), LeaderAndIsr(1, 0, (1,)))
        topics[topic] = Topic(None, {**before, int(number): partition})
    file = path / "cluster.json"
    file.write_bytes(json_form.encode(Cluster("ey5g-FnqTD-kdOop3hS1Qw", topics), secrets=True))
    return file


def test_the_directory_of_a_controller_that_runs_is_shown_but_not_converted(
    klog: Run, tmp_path: Path
) -> None:
    source = Path(shutil.copytree(LOGS, tmp_path / "source"))
    with held(HOLD, source / ".lock"):
        shown = klog("metadata", "show", source)
        assert (shown.code, f"is using {source}: it may write more" in shown.err) == (0, True), shown
        for place in (["-c", properties(tmp_path, tmp_path / "new")], [tmp_path / "tree", "--to", "tree"]):
            refused = klog("metadata", "convert", source, *place, "--yes")
            assert (refused.code, "is using this directory, and may change the metadata" in refused.err) == (
                1,
                True,
            )
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "tree").exists()


def test_old_message_formats_are_shown_with_what_they_need_and_refused_for_kafka_4(
    klog: Run, of_kafka_0_8: tuple[Path, Path], tmp_path: Path
) -> None:
    logs, metadata = of_kafka_0_8
    before = files(logs)
    command = ["metadata", "convert", metadata, "-c", properties(tmp_path, logs)]
    done = klog(*command, "--yes")
    assert done.code == 1
    segments = len(list(logs.rglob("*.log")))
    assert f"{segments} segments in message format 0 or 1, which Kafka 4 does not read" in done.err
    assert f"klog convert --all {logs}, or --convert-segments does it" in done.err
    assert files(logs) == before
    shown = klog(*command, "--dry-run", "-o", "json")
    assert shown.code == 1
    (row,) = (each for each in json.loads(shown.out) if each["kind"] == "old format")
    sizes = [each.stat().st_size for each in logs.rglob("*.log")]
    assert (row["where"], row["segments"], row["bytes"]) == (str(logs), segments, sum(sizes))
    (needs,) = (each for each in json.loads(shown.out) if each["kind"] == "conversion")
    assert needs["bytes"] > 0
    assert needs["what"] == f"klog convert --all {logs}"
    assert klog(*command, "--metadata-version", "3.9", "--dry-run").code == 0


def test_old_message_formats_are_converted_on_request(
    klog: Run, of_kafka_0_8: tuple[Path, Path], tmp_path: Path
) -> None:
    logs, metadata = of_kafka_0_8
    before = records(klog, logs)
    done = klog(
        "metadata", "convert", metadata, "-c", properties(tmp_path, logs), "--yes", "--convert-segments"
    )
    assert done.code == 0, done.err
    assert {each.read_bytes()[16] for each in logs.rglob("*.log") if each.stat().st_size} == {2}
    assert records(klog, logs) == before
    assert "no problems" in klog("metadata", "check", logs).out


def records(klog: Run, logs: Path) -> list[tuple[object, ...]]:
    shown = klog("dump-segment", "--format", "jsonl", *sorted(logs.rglob("*.log")))
    assert shown.code == 0, shown.err
    found = map(json.loads, shown.out.splitlines())
    return [(each["offset"], each["key"], each["value"]) for each in found]


def test_the_plan_says_how_much_is_written_and_how_much_stays(klog: Run, tmp_path: Path) -> None:
    shutil.copytree(next((FIXTURES / "k39-txn" / "logs").glob("t-txn-0")), tmp_path / "logs" / "t-txn-0")
    metadata = of_partitions(tmp_path, "t-txn-0")
    command = ["metadata", "convert", metadata, "-c", properties(tmp_path, tmp_path / "logs")]
    shown = klog(*command, "--dry-run")
    sizes = [each.stat().st_size for each in (tmp_path / "logs").rglob("*.log")]
    size = sum(sizes)
    kept = f"1 partition of broker 1 with {len(sizes)} segments, {human_bytes(size)}"
    assert f"keep {tmp_path / 'logs'}: {kept}\n" in shown.out
    done = klog(*command, "--yes", "-o", "json")
    rows = json.loads(done.out)
    (row,) = (each for each in rows if each["kind"] == "logs")
    assert (row["node"], row["partitions"], row["segments"], row["bytes"]) == (1, 1, len(sizes), size)
    written = [each for each in rows if each["kind"] == "write"]
    assert {Path(each["where"]).suffix for each in written} == {".properties", ".checkpoint"}
    assert [each["bytes"] for each in written] == [Path(each["where"]).stat().st_size for each in written]
    (time_row,) = (each for each in rows if each["kind"] == "time")
    assert time_row["ms"] > 0


def test_the_plan_of_a_large_cluster_says_how_long_it_takes() -> None:
    steps = (Step("zookeeper://zk:2181", "a tree", 1, pieces=240_000), Step("x.json", "all metadata", 1))
    plan = Plan(steps, lambda: None, Cluster())
    assert round(plan.writing_seconds(5)) == 29
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        show(plan, [], 29.4)
        show(replace(plan, steps=()), [], 1.9)
    assert shown.getvalue().count("time: ") == 1
    assert "time: about 29.4 s to write and check this\n" in shown.getvalue()


def test_problems_stop_the_conversion_unless_it_is_to_go_on(klog: Run, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    metadata = of_partitions(tmp_path, "t-0")
    before = files(tmp_path)
    command = ["metadata", "convert", metadata, "-c", properties(tmp_path, tmp_path / "logs")]
    done = klog(*command, "--yes")
    assert done.code == 1
    assert "problem: t-0: has no directory on broker 1: it would come back empty" in done.err
    assert "1 problem; nothing was changed" in done.err
    shown = klog(*command, "--yes", "-o", "json")
    assert (shown.code, {each["result"] for each in json.loads(shown.out)} >= {"would be written"}) == (
        1,
        True,
    )
    assert files(tmp_path) == {**before, "server.properties": (tmp_path / "server.properties").read_bytes()}
    assert klog(*command, *GO_ON).code == 0


def of_zookeeper(path: Path, logs: Path) -> Path:
    """The properties of a broker with ZooKeeper on these directories."""
    file = path / "server.properties"
    file.write_text(f"# mine\nbroker.id=1\nzookeeper.connect=zk:2181\nlog.dirs={logs}\npassword.x=hush\n")
    file.chmod(0o600)
    return file


def test_the_properties_of_a_broker_with_zookeeper_are_translated_beside_the_old_file(
    klog: Run, tmp_path: Path
) -> None:
    (tmp_path / "logs" / "t-0").mkdir(parents=True)
    file = of_zookeeper(tmp_path, tmp_path / "logs")
    old, new = file.read_text(), tmp_path / "server.properties.kraft"
    command = ["metadata", "convert", of_partitions(tmp_path, "t-0"), "-c", file]
    combined = [*command, "--roles", "broker,controller", "--voters", "1@h:9093"]
    shown = klog(*combined, "--dry-run")
    assert shown.code == 0, shown.err
    assert f"config: broker.id renamed in {file}: it is node.id\n" in shown.out
    assert "hush" not in shown.out
    assert not new.exists()
    done = klog(*combined, "--yes", "-o", "json")
    assert done.code == 0, done.err
    assert {"kind": "config", "where": str(file), "result": "dropped"}.items() <= next(
        each.items() for each in json.loads(done.out) if each["what"].startswith("zookeeper.connect: ")
    )
    by_hand = tmp_path / "by-hand.properties"
    words = ("--roles", "broker,controller", "--voters", "1@h:9093", "--write")
    assert klog("metadata", "properties", file, *words, by_hand).code == 0
    assert new.read_bytes() == by_hand.read_bytes()
    assert (file.read_text(), stat.S_IMODE(new.stat().st_mode)) == (old, 0o600)
    assert "no problems" in klog("metadata", "check", tmp_path / "logs").out


def test_what_a_person_has_to_decide_in_the_properties_stops_the_conversion(
    klog: Run, tmp_path: Path
) -> None:
    (tmp_path / "logs" / "t-0").mkdir(parents=True)
    file = of_zookeeper(tmp_path, tmp_path / "logs")
    command = ["metadata", "convert", of_partitions(tmp_path, "t-0"), "-c", file]
    before = files(tmp_path)
    refused = klog(*command, "--yes")
    assert (refused.code, "--voters names the controllers" in refused.err) == (2, True)
    file.write_text(file.read_text() + "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\n")
    before = files(tmp_path)
    refused = klog(*command, "--roles", "broker,controller", "--voters", "1@h:9093", "--yes")
    assert refused.code == 1
    assert f"problem: {file}: super.users is to be decided: brokers" in refused.err
    assert files(tmp_path) == before


def test_a_translation_does_not_replace_another_file(klog: Run, tmp_path: Path) -> None:
    (tmp_path / "logs" / "t-0").mkdir(parents=True)
    file = of_zookeeper(tmp_path, tmp_path / "logs")
    (tmp_path / "server.properties.kraft").write_text("mine")
    command = ["metadata", "convert", of_partitions(tmp_path, "t-0"), "-c", file, "--voters", "1@h:9093"]
    for words in ((), ("--ignore-problems",)):
        refused = klog(*command, "--roles", "broker,controller", "--yes", *words)
        assert (refused.code, "exists already" in refused.err) == (1, True)
    assert (tmp_path / "server.properties.kraft").read_text() == "mine"
    assert not (tmp_path / "logs" / "meta.properties").exists()


def test_properties_of_kraft_are_translated_back_for_a_tree_of_klog(klog: Run, tmp_path: Path) -> None:
    file = properties(tmp_path, tmp_path / "new")
    done = klog("metadata", "convert", LOGS, tmp_path / "new", "--to", "tree", "-c", file, "--yes")
    assert done.code == 0, done.err
    assert f"config: process.roles dropped in {file}" in done.out
    assert "broker.id=1\n" in (tmp_path / "server.properties.klog").read_text()
    assert "process.roles" in file.read_text()


@pytest.mark.kafka
def test_what_is_written_to_zookeeper_is_what_the_source_has(klog: Run, tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper") as zookeeper:
        place = f"{zookeeper.hosts}/some/chroot"
        command = ["metadata", "convert", LOGS, place, "--to", "zookeeper"]
        shown = klog(*command, "--dry-run")
        assert (shown.code, "zookeeper://" in shown.out) == (0, True), shown.err
        assert "groups of the consumer protocol (KIP-848)" in shown.out
        assert klog("metadata", "show", place).code == 1, "a dry run writes nothing, not even the chroot"
        assert klog(*command, "--yes").code == 0
        compared = klog("metadata", "diff", LOGS, place, "--only", "topic,config,acl,quota,credential")
        assert (compared.code, compared.out) == (0, "the metadata is the same\n"), compared.err
        again = klog(*command, "--yes")
        assert (again.code, "not empty" in again.err) == (1, True)


def test_running_brokers_of_a_live_zookeeper_are_refused(tmp_path: Path) -> None:
    cluster = Cluster("c", brokers={1: Broker()})
    target = Target(0, os.urandom, configs=(str(properties(tmp_path, tmp_path / "new")),))
    with pytest.raises(UsageError, match="brokers are running: 1"):
        conversion.plan(Reading(cluster, "ZooKeeper", is_live=True), conversion.Form.KRAFT, target)
    assert conversion.plan(Reading(cluster, "JSON file"), conversion.Form.KRAFT, target).steps
