"""`klog cluster`: what a cluster consists of, and what is wrong with it, on real clusters and from values."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from klog.admin.health import Check, ClusterState, LogDirFailure, Severity, by_cause, is_healthy, problems
from klog.admin.requests.cluster_description import NO_BROKER, BrokerNode, ClusterNodes, Quorum, QuorumReplica
from klog.admin.topics import Partition, Topic, TopicSetting
from klog.formats.names import TopicPartition
from tests.commands.asking import keeps_to_the_rule
from tests.commands.moving_clusters import kraft_brokers
from tests.commands.running import Run, runner
from tests.waiting import eventually

_numbers = itertools.count()
NOW_MS = 1_700_000_000_000


# -- on real clusters ----------------------------------------------------------------------------------------


def test_the_cluster_names_its_brokers_and_the_controller(klog: Run, cluster: str) -> None:
    (found,) = json.loads(klog("cluster", "-o", "json").out)
    (broker,) = found["brokers"]
    assert f"{broker['host']}:{broker['port']}" == cluster
    assert (found["controllerId"], broker["isController"]) == (broker["id"], True)
    assert (broker["isFenced"], broker["error"]) == (False, None)
    assert broker["version"]


def test_the_table_is_the_default_of_the_command(klog: Run, cluster: str) -> None:
    lines = klog("cluster").out.splitlines()
    assert lines[0].startswith("cluster ")
    assert lines[1].split() == ["ID", "HOST", "PORT", "RACK", "IS-CONTROLLER", "VERSION"]
    assert klog("cluster", "describe").out.splitlines()[:3] == lines[:3]
    assert klog("cluster", "-o", "csv").out.startswith("id,host,port,rack,")


@pytest.mark.parametrize("cluster", [pytest.param("kafka4", marks=pytest.mark.kafka)], indirect=True)
def test_features_and_quorum_of_kraft_are_shown(klog: Run, cluster: str) -> None:
    (found,) = json.loads(klog("cluster", "-o", "json").out)
    levels = {each["feature"]: each["finalizedVersionLevel"] for each in found["features"]}
    assert levels["metadata.version"] > 0
    (replica,) = found["quorum"]["replicas"]
    assert (replica["status"], replica["lag"]) == ("Leader", 0)
    assert found["quorum"]["leaderId"] == replica["replicaId"]
    assert "LAST-CAUGHT-UP-TIMESTAMP" in klog("cluster").out


@pytest.mark.kafka
def test_the_id_is_printed_as_by_kafka_cluster(klog: Run, cluster: str, tools) -> None:
    theirs = tools.run("org.apache.kafka.tools.ClusterTool", "cluster-id", "--bootstrap-server", cluster)
    assert theirs.status == 0, theirs.err
    assert klog("cluster", "cluster-id").out == theirs.out


def test_endpoints_of_brokers_are_listed(klog: Run, cluster: str) -> None:
    (found,) = json.loads(klog("cluster", "list-endpoints", "-o", "json").out)
    assert f"{found['host']}:{found['port']}" == cluster
    assert (found["state"], found["endpointType"]) == ("unfenced", "broker")
    header = klog("cluster", "list-endpoints").out.splitlines()[0]
    assert header.split() == ["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT-TYPE"]


@pytest.mark.parametrize("cluster", ["klog", pytest.param("kafka3", marks=pytest.mark.kafka)], indirect=True)
def test_a_cluster_without_kraft_has_no_fenced_and_no_registered_brokers(klog: Run, cluster: str) -> None:
    outcome = klog("cluster", "list-endpoints", "--include-fenced-brokers")
    assert (outcome.code, outcome.out) == (1, "")
    assert "does not tell which brokers are fenced (Kafka 4.0 and later do" in outcome.err
    outcome = klog("cluster", "unregister", 7, "--yes")
    assert (outcome.code, outcome.out) == (1, "")
    assert "cannot unregister brokers: only KRaft's registrations outlive a broker (stop the" in outcome.err
    outcome = klog("cluster", "unregister", "--id", 7)
    assert outcome.code == 0
    assert outcome.out == "The target cluster does not support the broker unregistration API.\n"


@pytest.mark.parametrize("cluster", [pytest.param("kafka3", marks=pytest.mark.kafka)], indirect=True)
def test_the_refusal_of_unregister_is_that_of_kafka_cluster(klog: Run, cluster: str, tools) -> None:
    words = ("unregister", "--bootstrap-server", cluster, "--id", 7)
    theirs = tools.run("org.apache.kafka.tools.ClusterTool", *words)
    assert (theirs.status, theirs.out) == klog("cluster", *words)[:2]


@pytest.mark.kafka
def test_a_broker_that_stopped_is_fenced_until_it_is_unregistered(
    kafka4, tmp_path, capfd, monkeypatch
) -> None:
    with kraft_brokers(kafka4, tmp_path, 3, {"broker.session.timeout.ms": 3000}) as brokers:
        monkeypatch.setenv("KLOG_BOOTSTRAP_SERVER", brokers[0].bootstrap)
        klog = runner(capfd, monkeypatch)
        assert klog("topics", "create", "held", "--replica-assignment", "1:0,0:1").code == 0
        outcome = klog("cluster", "unregister", 1)
        assert (outcome.code, outcome.out) == (1, "")
        assert "broker 1 is running: stop it first" in outcome.err
        assert "broker 1 has 2 replicas: `klog reassign plan --drain 1`" in outcome.err
        assert "nothing was changed (--yes" in outcome.err
        for each in brokers[1:]:
            each.kill()

        def states() -> dict[int, str]:
            out = klog("cluster", "list-endpoints", "--include-fenced-brokers", "-o", "json").out
            return {each["id"]: each["state"] for each in json.loads(out)}

        eventually(lambda: states() == {0: "unfenced", 1: "fenced", 2: "fenced"})
        (running,) = json.loads(klog("cluster", "list-endpoints", "-o", "json").out)
        assert running["id"] == 0
        words = ("list-endpoints", "--bootstrap-server", brokers[0].bootstrap, "--include-fenced-brokers")
        theirs = kafka4.java("org.apache.kafka.tools.ClusterTool", *words).stdout.decode()
        ours = klog("cluster", *words).out.replace("ENDPOINT-TYPE", "ENDPOINT_TYPE").replace(" - ", " null ")
        assert sorted(map(str.split, ours.splitlines())) == sorted(map(str.split, theirs.splitlines()))

        (row,) = keeps_to_the_rule(klog, "cluster unregister", [1], states)
        assert row["result"] == "is no longer registered"
        outcome = klog("cluster", "unregister", "--bootstrap-server", brokers[0].bootstrap, "--id", 2)
        assert (outcome.code, outcome.out) == (0, "Broker 2 is no longer registered.\n")
        eventually(lambda: states() == {0: "unfenced"})
        outcome = klog("cluster", "unregister", 2, "--yes")
        assert (outcome.code, outcome.out) == (1, "")
        assert "broker 2: BROKER_ID_NOT_REGISTERED: " in outcome.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("unregister",), "missing ID"),
        (("unregister", 1, "--id", 1), "ID and --id exclude each other"),
        (("unregister", 1, "-C", "127.0.0.1:1"), "not to KRaft controllers"),
        (("list-endpoints", "--bootstrap-controller", "127.0.0.1:1"), "not to KRaft controllers"),
    ],
)
def test_wrong_command_lines_are_refused_before_anything_is_asked(
    words: tuple[object, ...], said: str, capfd, monkeypatch
) -> None:
    outcome = runner(capfd, monkeypatch)("cluster", *words)
    assert outcome.code == 2
    assert said in outcome.err


def test_a_whole_cluster_is_healthy(klog: Run, topic: str) -> None:
    outcome = klog("cluster", "health")
    assert outcome.code == 0, outcome.out
    assert outcome.out.startswith("healthy: 1 broker, ")
    assert json.loads(klog("cluster", "health", "-o", "json").out) == []


def test_a_cluster_without_one_of_three_brokers_is_unhealthy_and_says_why(on_three: Run, three) -> None:
    klog = on_three
    name = f"health-{next(_numbers)}"
    words = ("--replica-assignment", "1:2:0,2:0:1", "--config", "min.insync.replicas=2")
    assert klog("topics", "create", name, *words).code == 0
    assert klog("topics", "create", f"{name}-single", "--replica-assignment", "2").code == 0
    eventually(lambda: klog("cluster", "health").code == 0)
    three.kill(2)

    def found() -> dict[str, list[dict]]:
        rows = [json.loads(line) for line in klog("cluster", "health", "--json").out.splitlines()]
        return {
            check: [
                row
                for row in rows
                if row["check"] == check and row["topic"] in (name, f"{name}-single", None)
            ]
            for check in Check
        }

    def told() -> bool:
        rows = found()
        return (
            [row["broker"] for row in rows[Check.BROKER_OFFLINE]] == [2]
            and [row["topic"] for row in rows[Check.OFFLINE_PARTITION]] == [f"{name}-single"]
            and {row["partition"] for row in rows[Check.AT_MIN_ISR]} == {0, 1}
            and len(rows[Check.UNDER_REPLICATED]) == 2
        )

    eventually(told)
    assert all("start broker 2" in row["cure"] for row in found()[Check.UNDER_REPLICATED])
    outcome = klog("cluster", "health")
    assert outcome.code == 1
    assert outcome.out.startswith("unhealthy: ")
    assert "broker-offline (1)  broker 2" in outcome.out
    three.restore()
    eventually(lambda: klog("cluster", "health").code == 0)


def test_no_broker_at_all_is_one_error(klog: Run) -> None:
    outcome = klog("cluster", "health", "-b", "127.0.0.1:1", "--timeout-ms", 100)
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err.count("\n") <= 2


# -- from values ---------------------------------------------------------------------------------------------


def node(broker_id: int, **changes: bool) -> BrokerNode:
    return BrokerNode(broker_id, "host", 9092, None, **changes)


def state(*partitions: Partition, min_isr: int = 2, brokers: tuple[int, ...] = (0, 1, 2)) -> ClusterState:
    settings = (TopicSetting("min.insync.replicas", str(min_isr), 5),)
    topic = Topic("orders", None, False, partitions, settings=settings)
    return ClusterState(ClusterNodes("id", 0, tuple(map(node, brokers))), [topic] if partitions else [])


def partition(leader: int, replicas: tuple[int, ...], isr: tuple[int, ...], *offline: int) -> Partition:
    return Partition(0, leader, 0, replicas, isr, offline)


def checks(found: ClusterState) -> list[Check]:
    return [each.check for each in problems(found, NOW_MS)]


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (partition(0, (0, 1, 2), (0, 1, 2)), []),
        (partition(0, (0, 1, 2), (0, 1)), [Check.UNDER_REPLICATED, Check.AT_MIN_ISR]),
        (partition(0, (0, 1, 2), (0,)), [Check.UNDER_MIN_ISR, Check.UNDER_REPLICATED]),
        (partition(1, (0, 1, 2), (0, 1, 2)), [Check.NOT_PREFERRED_LEADER]),
        (partition(1, (0, 1, 2), (1, 2)), [Check.UNDER_REPLICATED, Check.AT_MIN_ISR]),
        (partition(-1, (0, 1, 2), (2,)), [Check.OFFLINE_PARTITION]),
        (partition(0, (0, 1), (0, 1)), [Check.AT_MIN_ISR]),
        (partition(0, (0,), (0,)), [Check.UNDER_MIN_ISR]),
    ],
)
def test_a_partition_is_judged_by_its_leader_and_replicas(of: Partition, expected: list[Check]) -> None:
    assert checks(state(of)) == expected


def test_a_leader_that_is_not_alive_is_none() -> None:
    found = state(partition(2, (2, 1), (2,)), brokers=(0, 1))
    assert checks(found) == [Check.OFFLINE_PARTITION, Check.BROKER_OFFLINE]


def test_a_single_replica_with_min_isr_one_is_no_problem() -> None:
    assert checks(state(partition(0, (0,), (0,)), min_isr=1)) == []


def test_warnings_alone_leave_a_cluster_healthy_unless_it_is_strict() -> None:
    found = problems(state(partition(1, (0, 1, 2), (0, 1, 2))), NOW_MS)
    assert [each.check.severity for each in found] == [Severity.WARNING]
    assert is_healthy(found)
    assert not is_healthy(found, strict=True)


def test_the_cure_names_what_keeps_a_replica_away() -> None:
    def cure(found: ClusterState) -> str:
        return next(each for each in problems(found, NOW_MS) if each.check is Check.UNDER_REPLICATED).cure

    away = partition(0, (0, 1, 2), (0, 1))
    assert cure(state(away, brokers=(0, 1))) == "start broker 2"
    assert cure(state(away)).startswith("wait for broker 2")
    assert cure(state(partition(0, (0, 1, 2), (0, 1), 2))) == "repair the log directory of broker 2"


def test_what_one_thing_has_caused_is_one_cause() -> None:
    parts = [replace(partition(0, (0, 2, 1), (0, 1)), partition=number) for number in range(3)]
    other = replace(partition(0, (0, 1, 2), (0, 2)), partition=3)
    causes = by_cause(problems(state(*parts, other, min_isr=1, brokers=(0, 1)), NOW_MS))
    assert [(each[0].check, len(each)) for each in causes] == [
        (Check.BROKER_OFFLINE, 1),
        (Check.UNDER_REPLICATED, 3),
        (Check.UNDER_REPLICATED, 1),
    ]


def test_the_only_replica_in_sync_keeps_the_partition_online() -> None:
    """With min.insync.replicas 1 no write is refused as long as there is a leader."""
    found = problems(state(partition(0, (0, 1), (0,)), min_isr=1), NOW_MS)
    (at_minimum,) = [each for each in found if each.check is Check.AT_MIN_ISR]
    assert at_minimum.what == "the leader is the only replica in sync: the partition is offline if it fails"


def test_where_all_replicas_are_in_sync_the_topic_is_at_fault() -> None:
    found = problems(state(partition(0, (0,), (0,)), partition(0, (0, 1), (0, 1))), NOW_MS)
    assert [each.check for each in found] == [Check.UNDER_MIN_ISR, Check.AT_MIN_ISR]
    assert all(each.cure.startswith("add a replica") for each in found)


def test_brokers_and_directories_that_fail_are_named() -> None:
    found = replace(
        state(),
        nodes=ClusterNodes("id", NO_BROKER, (node(0), node(1, is_fenced=True))),
        unreachable={0: "cannot connect"},
        log_dir_failures=[LogDirFailure(0, "/data/b", "KAFKA_STORAGE_ERROR")],
    )
    assert checks(found) == [
        Check.NO_CONTROLLER,
        Check.BROKER_UNREACHABLE,
        Check.BROKER_FENCED,
        Check.LOG_DIR_OFFLINE,
    ]
    (disk,) = (each for each in problems(found, NOW_MS) if each.check is Check.LOG_DIR_OFFLINE)
    assert (disk.broker_id, disk.log_dir, disk.what) == (0, "/data/b", "KAFKA_STORAGE_ERROR")


def test_a_voter_that_stands_still_is_a_problem_and_an_observer_is_not() -> None:
    replicas = (
        QuorumReplica(1, True, 100, NOW_MS),
        QuorumReplica(2, True, 40, NOW_MS - 60_000),
        QuorumReplica(3, True, 100, NOW_MS - 500),
        QuorumReplica(4, False, 10, NOW_MS - 60_000),
    )
    found = replace(state(), quorum=Quorum(1, 7, 100, replicas))
    (problem,) = problems(found, NOW_MS)
    assert (problem.check, problem.broker_id) == (Check.QUORUM_BEHIND, 2)
    assert problem.what == "the controller is 60 records behind"


def test_a_problem_of_a_partition_has_its_state_in_json() -> None:
    (first, *_) = problems(state(partition(0, (0, 1, 2), (0,))), NOW_MS)
    row = first.to_json()
    assert TopicPartition(row["topic"], row["partition"]) == TopicPartition("orders", 0)
    assert (row["leader"], row["replicas"], row["isr"], row["minIsr"]) == (0, [0, 1, 2], [0], 2)
    assert row["severity"] == "error"
