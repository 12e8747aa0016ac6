"""Brokers that must not be members, and brokers whose files are damaged, in a cluster of klog brokers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.agreement import differences
from tests.cluster.members import Kind, Member
from tests.cluster.reading import check
from tests.cluster.world import Cluster, cluster, kinds
from tests.peers.kafka import KafkaPeer
from tests.swap.clients import Writer, Written
from tests.swap.klog_process import KlogBroker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, kafka3: KafkaPeer) -> Iterator[Cluster]:
    work: Path = tmp_path_factory.mktemp("bad-members")
    with cluster(work, kafka3, kinds("klog,klog,klog")) as found:
        found.start()
        yield found
        assert "Traceback" not in "".join(each.klog_log for each in found.members.values())


def write(world: Cluster, topic: str, count: int, marker: str, into: Written) -> None:
    # A request that is sent again gets an answer without an offset.
    writer = Writer(world.bootstrap, into, message_timeout_ms=120_000, request_timeout_ms=110_000)
    for number in range(count):
        writer.write(topic, f"{marker}/{number}/".encode() * 20, b"%d" % number)
    writer.finish(120)


def segment_of(member: Member, topic: str) -> Path:
    (directory,) = [each / f"{topic}-0" for each in member.log_directories if (each / f"{topic}-0").is_dir()]
    return min(directory.glob("*.log"))


def test_a_second_broker_with_the_same_id_does_not_start(world: Cluster, tmp_path: Path) -> None:
    config = {**world.members[0].config, "log.dirs": str(tmp_path / "logs")}
    second = KlogBroker(tmp_path, config)
    config_of_second = {"listeners": f"INSIDE://127.0.0.1:{second.port},CLIENTS://127.0.0.1:0"}
    second.config.update(config_of_second)
    with second:
        second.spawn()
        assert second.ended(120) == 1
        assert "Traceback" not in second.log_text
        assert "broker id 0 is in use by another live broker" in second.log_text
    written: Written = {}
    world.create({"unharmed": 1})
    write(world, "unharmed", 20, "after", written)
    world.wait_for_full_isr()
    check(world, written)


def test_a_broker_with_the_disks_of_another_cluster_does_not_start(world: Cluster, tmp_path: Path) -> None:
    with KlogBroker(tmp_path) as other:
        other.start()
        other.stop()
    world.members[1].stop()
    foreign = KlogBroker(tmp_path, {**world.members[1].config, "log.dirs": str(tmp_path / "logs")})
    foreign.config["broker.id"] = 0
    world.members[0].stop()
    with foreign:
        foreign.spawn()
        assert foreign.ended(120) == 1
        assert "Traceback" not in foreign.log_text
        assert "cluster" in foreign.log_text
    world.start(0, 1)
    world.wait_for_full_isr()


def test_a_follower_with_damaged_logs_copies_them_again(world: Cluster) -> None:
    topics = {f"damaged-{how.replace(' ', '-')}": how for how in ("cut short", "garbled", "longer", "gone")}
    world.create(dict.fromkeys(topics, 1), assignment=[[0, 1, 2]])
    written: Written = {}
    for topic in topics:
        write(world, topic, 200, "before", written)
    world.wait_for_full_isr()
    world.members[1].kill()
    for topic, how in topics.items():
        damage(segment_of(world.members[1], topic), how)
        write(world, topic, 100, "meanwhile", written)
    world.start(1)
    world.wait_for_full_isr()
    check(world, written)
    world.stop()
    ends = {partition: max(records) + 1 for partition, records in written.items()}
    assert list(differences(world.members.values(), ends)) == []


def damage(segment: Path, how: str) -> None:
    """Changes a log that was not closed cleanly."""
    data = segment.read_bytes()
    if how == "cut short":
        segment.write_bytes(data[: len(data) // 2 + 7])
    elif how == "garbled":
        middle = len(data) // 2
        segment.write_bytes(data[:middle] + random.Random(1).randbytes(100) + data[middle + 100 :])
    elif how == "longer":
        segment.write_bytes(data + random.Random(1).randbytes(5000))
    else:
        for each in segment.parent.iterdir():
            each.unlink()
        segment.parent.rmdir()


def test_a_leader_whose_disk_is_full_gives_its_partitions_away(tmp_path: Path, kafka3: KafkaPeer) -> None:
    """Files cannot grow beyond a limit, which fails as a full disk does."""
    limit = "import resource, sys; sys.dont_write_bytecode = True; "
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))"
    config = {"log.segment.bytes": 50_000_000, "log.index.size.max.bytes": 4096}
    with cluster(tmp_path, kafka3, [Kind.KLOG] * 3, config) as world:
        first = world.members[0]
        first.before = limit
        first.config["log.dirs"] = f"{first.work / 'a'},{first.work / 'b'}"
        world.start()
        world.create({"big": 1, "other": 1}, assignment=[[0, 1, 2]])
        written: Written = {}
        writer = Writer(world.bootstrap, written, message_timeout_ms=120_000)
        for number in range(300):
            writer.write("big", b"%d" % number * 4000)
            writer.flush(0.01)
        writer.finish(120)
        assert world.leader(("big", 0)) != 0
        write(world, "other", 20, "served", written)
        check(world, written)
        assert first.log_text.count("goes offline") == 1
        world.members[0].stop()
        first.before = ""
        world.start(0)
        world.wait_for_full_isr()
        check(world, written)
        world.stop()
        ends = {partition: max(records) + 1 for partition, records in written.items()}
        assert list(differences(world.members.values(), ends)) == []
