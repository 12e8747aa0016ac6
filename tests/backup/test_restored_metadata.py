"""The metadata that comes back with the logs: configs, ACLs, ids, epochs, on the new brokers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from klog.backup.restoring.request import RestoreRequest, plan_of, select
from klog.backup.restoring.run import TargetOptions, run_restore
from klog.client.admin import Resource, ResourceType
from klog.cluster_metadata import json_form, tree_form
from klog.cluster_metadata.model import Broker, Cluster, Partition, ScramUser, Topic
from klog.metadata.embedded import FILE_NAME, EmbeddedStore
from klog.metadata.values import LeaderAndIsr, ReplicaAssignment
from klog.protocol.acls import Acl, AclOperation, AclResourceType, PatternType, Permission, ResourcePattern
from tests.backup.repositories import Backups
from tests.export.logs import Log, batch, write_epochs, write_topic_id

ID = "AAAAAAAAAAAAAAAAAAAAAQ"
OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAg"
ACL = Acl(
    ResourcePattern(AclResourceType.TOPIC, "orders", PatternType.LITERAL),
    "User:alice",
    "*",
    AclOperation.READ,
    Permission.ALLOW,
)
FEW = {"retention.ms": "1000", "index.interval.bytes": "128"}


def cluster() -> Cluster:
    """A cluster of the brokers 5 and 6, with a topic that is backed up and one that is not."""
    placed = Partition(ReplicaAssignment((5, 6)), LeaderAndIsr(5, 7, (5, 6)))
    return Cluster(
        cluster_id="WnrRcUjsTR6xk3yBsWKJjQ",
        topics={"orders": Topic(ID, {0: placed}), "other": Topic(OTHER_ID, {0: placed})},
        configs={
            Resource(ResourceType.TOPIC, "orders"): FEW,
            Resource(ResourceType.TOPIC, "other"): FEW,
            Resource(ResourceType.BROKER, ""): {"ssl.keystore.password": "secret", "log.retention.ms": "5"},
        },
        acls=frozenset({ACL}),
        scram={ScramUser("alice", "SCRAM-SHA-256"): None},
        next_producer_id=5000,
        brokers={5: Broker(), 6: Broker()},
    )


def back_up(backups: Backups, logs: Path, metadata: Cluster | None) -> None:
    (logs / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=WnrRcUjsTR6xk3yBsWKJjQ\n")
    batches = [
        batch(at, 5, size=50, leader_epoch=7, producer_id=7100, producer_epoch=0, base_sequence=at)
        for at in range(0, 200, 5)
    ]
    directory = Log(logs / "orders-0").append(*batches).write()
    write_topic_id(directory, ID)
    write_epochs(directory, (7, 0))
    backups.run(logs, metadata=None if metadata is None else json_form.encode(metadata))


def restored(backups: Backups, path: Path, **request: object) -> tuple[Cluster, tuple[str, ...]]:
    """Restores for the broker 1, and reads the metadata that it starts with."""
    wanted = RestoreRequest(**request)  # type: ignore[arg-type]
    selected = select(backups.repository, wanted)
    plan = plan_of(backups.repository, wanted, selected)
    options = TargetOptions(str(path), "unused", (1,))
    losses = run_restore(backups.repository, plan, selected.manifest, options).losses
    store = EmbeddedStore(path / FILE_NAME)
    try:
        return tree_form.read(store, "embedded").cluster, losses
    finally:
        store.close()


def test_topics_come_back_with_ids_configs_and_acls_on_the_new_broker(
    backups: Backups, logs: Path, tmp_path: Path
) -> None:
    back_up(backups, logs, cluster())

    found, losses = restored(backups, tmp_path / "new")

    assert found.cluster_id == "WnrRcUjsTR6xk3yBsWKJjQ"
    # The epoch is above that of the records, as if a new leader had been elected.
    placed = Partition(ReplicaAssignment((1,)), LeaderAndIsr(1, 8, (1,)))
    assert found.topics == {"orders": Topic(ID, {0: placed})}
    assert found.configs == {
        Resource(ResourceType.TOPIC, "orders"): FEW,
        Resource(ResourceType.BROKER, ""): {"log.retention.ms": "5"},
    }
    assert found.acls == {ACL}
    assert (found.brokers, found.scram) == ({}, {})
    assert any("alice" in each for each in losses)
    assert any("ssl.keystore.password" in each for each in losses)


def test_no_producer_gets_an_id_that_the_logs_know(backups: Backups, logs: Path, tmp_path: Path) -> None:
    back_up(backups, logs, cluster())

    found, _ = restored(backups, tmp_path / "new")

    assert found.next_producer_id > 7100


def test_indexes_follow_the_configs_of_their_topic(backups: Backups, logs: Path, tmp_path: Path) -> None:
    back_up(backups, logs, cluster())
    restored(backups, tmp_path / "few")
    fewer = replace(cluster(), configs={})
    back_up(backups, logs, fewer)
    restored(backups, tmp_path / "usual")

    index = Path("orders-0") / "00000000000000000000.index"
    assert (tmp_path / "few" / index).stat().st_size > (tmp_path / "usual" / index).stat().st_size > 0


def test_a_renamed_topic_keeps_its_configs(backups: Backups, logs: Path, tmp_path: Path) -> None:
    back_up(backups, logs, cluster())

    found, _ = restored(backups, tmp_path / "new", names={"orders": "orders-before"})

    assert found.topics.keys() == {"orders-before"}
    assert found.configs[Resource(ResourceType.TOPIC, "orders-before")] == FEW


def test_a_topic_beside_the_living_one_has_an_id_of_its_own(
    backups: Backups, logs: Path, tmp_path: Path
) -> None:
    """Kafka knows logs by the ids of their topics. A restore that goes on gives the same one."""
    back_up(backups, logs, cluster())
    names = {"orders": "orders-before"}

    (first, again, other) = (
        restored(backups, tmp_path / str(number), names=given)[0].topics[given["orders"]].topic_id
        for number, given in enumerate((names, names, {"orders": "orders-old"}))
    )

    assert first == again
    assert len({ID, first, other}) == 3
    written = (tmp_path / "0" / "orders-before-0" / "partition.metadata").read_text()
    assert written == f"version: 0\ntopic_id: {first}"


def test_a_topic_whose_configs_are_unknown_keeps_all_records(
    backups: Backups, logs: Path, tmp_path: Path
) -> None:
    back_up(backups, logs, None)

    found, losses = restored(backups, tmp_path / "new")

    assert found.configs[Resource(ResourceType.TOPIC, "orders")]["retention.ms"] == "-1"
    assert losses == ("the configs of topic orders: it keeps all records until its retention is set",)


def test_without_new_brokers_the_old_assignment_comes_back(
    backups: Backups, logs: Path, tmp_path: Path
) -> None:
    back_up(backups, logs, cluster())
    selected = select(backups.repository, RestoreRequest())
    plan = plan_of(backups.repository, RestoreRequest(), selected)

    options = TargetOptions(str(tmp_path / "new"), "unused")
    done = run_restore(backups.repository, plan, selected.manifest, options)

    assert list(done.directories) == [5, 6]
    assert all((Path(each) / "orders-0").is_dir() for each in done.directories.values())
    found = json_form.decode((tmp_path / "new" / "cluster-metadata.json").read_bytes())
    assert found.topics["orders"].partitions[0].assignment == ReplicaAssignment((5, 6))
