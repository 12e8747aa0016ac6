"""A server.properties is translated between ZooKeeper and KRaft. Each change is named, no secret shown."""

from __future__ import annotations

import pytest

from klog.config.kraft_names import DEFAULTS
from klog.config.kraft_properties import KRaftNode, to_kraft
from klog.config.properties_draft import Outcome, Translation
from klog.config.zookeeper_properties import to_zookeeper
from klog.formats.errors import UsageError
from klog.formats.java_properties import build, entries, parse_text

COMBINED = KRaftNode(("broker", "controller"), voters="1@127.0.0.1:9093")
BROKER = KRaftNode(voters="9@127.0.0.1:9093")


def kraft(text: str, node: KRaftNode = BROKER) -> Translation:
    return to_kraft(parse_text(text), node)


def outcomes(found: Translation) -> dict[str, Outcome]:
    return {each.name: each.outcome for each in found.changes if each.outcome is not Outcome.DEFAULT}


def values(found: Translation) -> dict[str, str]:
    return entries(found.lines)


def test_comments_order_and_lines_that_stay_are_kept() -> None:
    text = "# mine\nbroker.id = 1\n\n! two\nnum.partitions : 3\\\n  4\nzookeeper.connect=zk:2181\nlog.dirs=/d"
    found = build(kraft(text).lines).decode()
    assert found.startswith(
        "# mine\nnode.id=1\n\n! two\nnum.partitions : 3\\\n  4\nlog.dirs=/d\n\n# Of KRaft\n"
    )


def test_a_combined_node_listens_where_the_quorum_knows_it() -> None:
    found = kraft("broker.id=1\nlisteners=SSL://h:9092\nsecurity.inter.broker.protocol=SSL\n", COMBINED)
    assert values(found) == {
        "node.id": "1",
        "listeners": "SSL://h:9092,CONTROLLER://127.0.0.1:9093",
        "security.inter.broker.protocol": "SSL",
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "listener.security.protocol.map": "SSL:SSL,CONTROLLER:SSL",
    }
    assert outcomes(found)["listener.name.controller.*"] is Outcome.DECIDE


def test_a_broker_does_not_listen_as_a_controller() -> None:
    found = kraft("broker.id=1\nlisteners=PLAINTEXT://h:9092\n")
    assert values(found)["listeners"] == "PLAINTEXT://h:9092"
    assert found.is_complete


def test_a_controller_alone_has_its_own_listener_id_and_directory() -> None:
    text = "broker.id=1\nlisteners=PLAINTEXT://h:9092\nadvertised.listeners=PLAINTEXT://h:9092\nlog.dirs=/d\n"
    found = kraft(text, KRaftNode(("controller",), 9, "9@h:9093"))
    assert (values(found)["node.id"], values(found)["listeners"]) == ("9", "CONTROLLER://h:9093")
    assert "advertised.listeners" not in values(found)
    assert {"node.id", "log.dirs"} <= {each.name for each in found.changes if each.outcome is Outcome.DECIDE}


def test_what_nobody_said_is_left_to_decide() -> None:
    found = kraft("log.dirs=/d\n", KRaftNode(("broker", "controller")))
    assert {name for name, each in outcomes(found).items() if each is Outcome.DECIDE} == {
        "node.id",
        "controller.quorum.voters",
        "listeners",
    }
    assert not found.is_complete


@pytest.mark.parametrize("broker_id", ["broker.id=-1\n", ""])
def test_a_generated_id_must_be_said(broker_id: str) -> None:
    assert values(kraft(broker_id, KRaftNode(node_id=4, voters="9@h:1")))["node.id"] == "4"


def test_renamed_configs_keep_their_values_and_their_place() -> None:
    text = (
        "broker.id=1\nlog.message.timestamp.difference.max.ms=5\ndelegation.token.master.key=key\n"
        "log.message.timestamp.before.max.ms=7\n"
    )
    found = values(kraft(text))
    assert found["log.message.timestamp.after.max.ms"] == "5"
    assert found["log.message.timestamp.before.max.ms"] == "7"
    assert found["delegation.token.secret.key"] == "key"
    assert "delegation.token.master.key" not in found


def test_limits_of_kafka_4_are_kept() -> None:
    text = "log.segment.bytes=14\nremote.log.manager.copier.thread.pool.size=-1\nnum.partitions=1\n"
    found = values(kraft("broker.id=1\n" + text))
    assert (found["log.segment.bytes"], found["num.partitions"]) == ("1048576", "1")
    assert "remote.log.manager.copier.thread.pool.size" not in found


def test_metrics_in_jmx_stay() -> None:
    jmx = "org.apache.kafka.common.metrics.JmxReporter"
    assert values(kraft("metric.reporters=a.B\n"))["metric.reporters"] == f"a.B,{jmx}"
    assert values(kraft("auto.include.jmx.reporter=false\n"))["metric.reporters"] == ""
    assert "metric.reporters" not in values(kraft("auto.include.jmx.reporter=true\n"))


def test_a_control_plane_listener_goes_with_its_addresses() -> None:
    text = (
        "broker.id=1\nlisteners=CONTROLLER://h:9094,PLAINTEXT://h:9092\n"
        "listener.security.protocol.map=CONTROLLER:SSL,PLAINTEXT:PLAINTEXT\n"
        "control.plane.listener.name=CONTROLLER\n"
    )
    found = values(kraft(text, COMBINED))
    assert found["listeners"] == "PLAINTEXT://h:9092,CONTROLLER://127.0.0.1:9093"
    assert found["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert "control.plane.listener.name" not in found


def test_addresses_of_old_brokers_become_listeners() -> None:
    found = values(kraft("broker.id=1\nhost.name=h\nport=9000\nadvertised.host.name=a\n"))
    assert found["listeners"] == "PLAINTEXT://h:9000"
    assert found["advertised.listeners"] == "PLAINTEXT://a:9092"
    assert "port" not in found


def test_a_default_that_changed_is_named_unless_the_config_is_set() -> None:
    named = {each.name for each in kraft("broker.id=1\n").changes if each.outcome is Outcome.DEFAULT}
    assert named == set(DEFAULTS)
    text = "num.recovery.threads.per.data.dir=1\n"
    assert "num.recovery.threads.per.data.dir" not in {each.name for each in kraft(text).changes}


def test_sasl_between_brokers_is_sasl_to_the_controllers() -> None:
    text = (
        "broker.id=1\ninter.broker.listener.name=IN\nsasl.mechanism.inter.broker.protocol=PLAIN\n"
        "listener.security.protocol.map=IN:SASL_SSL\nlisteners=IN://h:9092\n"
    )
    found = values(kraft(text))
    assert found["listener.security.protocol.map"] == "IN:SASL_SSL,CONTROLLER:SASL_SSL"
    assert found["sasl.mechanism.controller.protocol"] == "PLAIN"


def test_no_change_says_a_secret() -> None:
    secrets = (
        "ssl.keystore.password=hush\nzookeeper.ssl.keystore.password=hush\npassword.encoder.secret=hush\n"
        "delegation.token.master.key=hush\nlistener.name.in.plain.sasl.jaas.config=hush\n"
    )
    for found in (kraft("broker.id=1\n" + secrets), to_zookeeper(kraft("broker.id=1\n" + secrets).lines)):
        assert "hush" not in str(found.changes)


def test_the_way_back_gives_a_broker_with_zookeeper() -> None:
    text = (
        "broker.id=1\nlisteners=PLAINTEXT://h:9092\nauthorizer.class.name="
        "kafka.security.authorizer.AclAuthorizer\nsuper.users=User:a\n"
    )
    back = to_zookeeper(kraft(text, COMBINED).lines, "zk:2181/kafka")
    assert values(back) == {
        "broker.id": "1",
        "listeners": "PLAINTEXT://h:9092",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:a",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
        "zookeeper.connect": "zk:2181/kafka",
    }
    assert back.is_complete


def test_what_only_kafka_4_takes_is_dropped_on_the_way_back() -> None:
    text = (
        "process.roles=broker\nnode.id=2000\ngroup.coordinator.rebalance.protocols=classic,consumer,streams\n"
        "group.share.record.lock.duration.ms=3600000\nshare.coordinator.threads=2\n"
        "log.roll.ms=${env:ROLL}\nlistener.name.c.ssl.keystore.location=/k\ncontroller.listener.names=C\n"
    )
    assert values(to_zookeeper(parse_text(text), "zk:1")) == {
        "broker.id": "2000",
        "broker.id.generation.enable": "false",
        "log.roll.ms": "${env:ROLL}",
        "zookeeper.connect": "zk:1",
    }


def test_a_file_of_the_other_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="of a KRaft node already"):
        kraft("process.roles=broker\n")
    with pytest.raises(UsageError, match="not the configs of a KRaft node"):
        to_zookeeper(parse_text("broker.id=1\n"))
    with pytest.raises(UsageError, match="controller only"):
        to_zookeeper(parse_text("process.roles=controller\n"))
