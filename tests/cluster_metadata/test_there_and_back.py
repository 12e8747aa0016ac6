"""Real clusters of five kinds are stopped in the middle of their work, and go on as Kafka 4, klog or 3.9."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from klog.cluster_metadata.comparison import differences
from klog.cluster_metadata.model import Cluster
from klog.cluster_metadata.sources import read_source
from tests.cluster_metadata.play import MOVED, Play
from tests.cluster_metadata.real_sources import SOURCES, Stopped
from tests.cluster_metadata.real_targets import TARGETS
from tests.commands.running import Run, runner
from tests.conftest import give_up
from tests.peers import KAFKA_3, KAFKA_4, KafkaPeer, PeerUnavailableError
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


@pytest.fixture(scope="module")
def kept() -> dict[str, Stopped]:
    """The clusters that were stopped so far, by name: each is filled once for all that it becomes."""
    return {}


def copy_of(
    name: str, klog: Run, kept: dict[str, Stopped], tmp_path_factory: pytest.TempPathFactory
) -> Stopped:
    require_peers(SOURCES[name].peer)
    if name not in kept:
        kept[name] = SOURCES[name].stopped(tmp_path_factory.mktemp("stopped"), klog)
    original = kept[name]
    work = Path(shutil.copytree(original.work, tmp_path_factory.mktemp("copy") / "work"))
    return replace(original, work=work)


def require_peers(source: KafkaPeer) -> None:
    try:
        assert all(each.classpath for each in (source, KafkaPeer(KAFKA_3), KafkaPeer(KAFKA_4)))
    except PeerUnavailableError as missing:
        give_up("real Kafka", missing)


CASES = [
    (source, target)
    for source in SOURCES
    for target in TARGETS
    if SOURCES[source].is_kraft or target.startswith("kafka-4")
]


@pytest.mark.parametrize(("source", "target"), CASES)
def test_a_cluster_goes_on_where_its_metadata_went(
    source: str,
    target: str,
    klog: Run,
    kept: dict[str, Stopped],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    go_on(source, target, copy_of(source, klog, kept, tmp_path_factory), klog)


def go_on(source: str, target: str, stopped: Stopped, klog: Run) -> None:
    ports = stopped.ports
    before = read_source(source_of(stopped)).cluster
    with TARGETS[target](klog, stopped) as place:
        consumer_groups = SOURCES[source].has_consumer_groups and target != "kafka-3-with-zookeeper"
        play = Play(ports.address, ports.sasl_address, consumer_groups, SOURCES[source].peer)
        play.require_everything(stopped.before)
        if SOURCES[source].has_share_groups and target.startswith("kafka-4"):
            play.require_share_group_goes_on()
        if target == "kafka-4-three-and-three":
            eventually(lambda: play.replicas(MOVED) == [1])
            assert play.records((MOVED,)) == [row for row in stopped.before.records if row[0] == MOVED]
        else:
            at = ("-b", ports.address)
            assert MOVED in klog("reassign", "list", *at).out
            plan = stopped.work / "reassignment.json"
            done = klog("reassign", "cancel", plan, "--yes", "--preserve-throttles", *at)
            assert done.code == 0, done.err
            eventually(lambda: play.replicas(MOVED) == [0])
    require_same(before, read_source(place).cluster)


def source_of(stopped: Stopped) -> str:
    return str(stopped.zookeeper if stopped.zookeeper.exists() else stopped.logs(0))


def require_same(before: Cluster, after: Cluster) -> None:
    """What users set is the same, but for a config of topics that Kafka 4 has under other names."""
    found = {
        (each.item.kind, each.item.name, each.item.member)
        for each in differences(before, after)
        if each.item.kind in {"topic", "acl", "quota", "credential", "config"}
    }
    renamed = {each for each in found if each[2].startswith("message.timestamp.")}
    assert len(renamed) in (0, 3)
    # Only a topic that an old broker made has another id: it had none.
    without_id = {name for name, each in before.topics.items() if each.topic_id is None}
    assert found - renamed == {("topic", name, "topicId") for name in without_id}
