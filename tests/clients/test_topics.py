"""confluent-kafka and kafka-python administer topics, configs and offsets."""

from __future__ import annotations

import confluent_kafka
import kafka
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka.errors import (
    InvalidReplicationAssignmentError,
    NoReassignmentInProgressError,
    UnknownTopicOrPartitionError,
)

import klog.testing
from tests.clients.python_clients import ConfluentKafka, Refused, Sent
from tests.waiting import eventually

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def admin(broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})


@pytest.fixture
def kafka_python_admin(broker):
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    yield admin
    admin.close()


@pytest.fixture
def writer(broker):
    return ConfluentKafka(broker.bootstrap_servers)


def result(futures):
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def error_name(call, *args, **kwargs) -> str:
    with pytest.raises(KafkaException) as raised:
        result(call(*args, **kwargs))
    return raised.value.args[0].name()


def topics(admin):
    return admin.list_topics(timeout=TIMEOUT_S).topics


class TestTopics:
    def test_a_topic_is_created_described_and_deleted(self, admin, broker):
        result(admin.create_topics([NewTopic("made", 3, 1)], operation_timeout=TIMEOUT_S))
        described = result(admin.describe_topics(confluent_kafka.TopicCollection(["made"])))
        assert [part.id for part in described.partitions] == [0, 1, 2]
        assert {part.leader.id for part in described.partitions} == {0}
        assert all([node.id for node in part.isr] == [0] for part in described.partitions)
        result(admin.delete_topics(["made"], operation_timeout=TIMEOUT_S))
        assert "made" not in topics(admin)
        eventually(lambda: not any((directory / "made-0").exists() for directory in broker.log_dirs))

    def test_a_deleted_name_can_be_used_again_and_starts_at_0(self, admin, writer):
        def created() -> bool:
            # As with Kafka, a deleted topic disappears a moment before its name is free.
            future = admin.create_topics([NewTopic("again", 1, 1)], operation_timeout=TIMEOUT_S)["again"]
            error = future.exception(TIMEOUT_S)
            assert error is None or "marked for deletion" in str(error)
            return error is None

        for _ in range(3):
            eventually(created)
            assert writer.write("again", [Sent(b"v")]) == [0]
            result(admin.delete_topics(["again"], operation_timeout=TIMEOUT_S))

    @pytest.mark.parametrize(
        ("topic", "error"),
        [
            (NewTopic("not a name", 1, 1), "TOPIC_EXCEPTION"),
            (NewTopic("too-many-replicas", 1, 2), "INVALID_REPLICATION_FACTOR"),
            (NewTopic("no-partitions", 0, 1), "INVALID_PARTITIONS"),
            (NewTopic("bad-config", 1, 1, config={"retention.ms": "soon"}), "INVALID_CONFIG"),
            (NewTopic("unknown-config", 1, 1, config={"retention.aeons": "1"}), "INVALID_CONFIG"),
            (NewTopic("bad-assignment", 1, replica_assignment=[[0, 0]]), "INVALID_REPLICA_ASSIGNMENT"),
        ],
        ids=lambda value: value if isinstance(value, str) else value.topic,
    )
    def test_requests_that_kafka_refuses_are_refused(self, admin, topic, error):
        assert error_name(admin.create_topics, [topic]) == error
        assert topic.topic not in topics(admin)

    def test_an_existing_topic_is_not_created_again(self, admin, new_topic):
        assert error_name(admin.create_topics, [NewTopic(new_topic(), 1, 1)]) == "TOPIC_ALREADY_EXISTS"

    def test_an_unknown_topic_is_not_deleted(self, admin):
        assert error_name(admin.delete_topics, ["never-made"]) == "UNKNOWN_TOPIC_OR_PART"

    def test_validating_creates_nothing(self, admin):
        result(admin.create_topics([NewTopic("asked-only", 1, 1)], validate_only=True))
        assert "asked-only" not in topics(admin)

    def test_new_partitions_of_a_topic_accept_records(self, admin, new_topic, writer):
        topic = new_topic()
        result(admin.create_partitions([NewPartitions(topic, 3)], operation_timeout=TIMEOUT_S))
        assert writer.write(topic, [Sent(b"v")], partition=2) == [0]
        assert error_name(admin.create_partitions, [NewPartitions(topic, 2)]) == "INVALID_PARTITIONS"

    def test_kafka_python_does_the_same(self, kafka_python_admin, broker):
        admin = kafka_python_admin
        admin.create_topics({"by-kafka-python": {"num_partitions": 2, "replication_factor": 1}})
        assert "by-kafka-python" in admin.list_topics()
        admin.create_partitions({"by-kafka-python": 4})
        assert broker.partition_dir("by-kafka-python", 3).is_dir()
        admin.delete_topics(["by-kafka-python"])
        assert "by-kafka-python" not in admin.list_topics()

    def test_without_auto_creation_a_missing_topic_is_an_error(self):
        with klog.testing.broker({"auto.create.topics.enable": False}) as strict:
            producer = confluent_kafka.Producer(
                {
                    "bootstrap.servers": strict.bootstrap_servers,
                    # The error comes with the metadata; on a busy machine that takes a while.
                    "delivery.timeout.ms": 60_000,
                    "log_level": 0,
                    "topic.metadata.propagation.max.ms": 0,
                }
            )
            errors = []
            producer.produce("missing", b"v", on_delivery=lambda error, _: errors.append(error.name()))
            producer.flush(TIMEOUT_S)
            assert errors == ["UNKNOWN_TOPIC_OR_PART"]
            assert (
                list(AdminClient({"bootstrap.servers": strict.bootstrap_servers}).list_topics().topics) == []
            )


class TestConfigs:
    def of_topic(self, admin, topic):
        return result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))

    def alter(self, admin, kind, name, key, value, operation=AlterConfigOpType.SET):
        entry = ConfigEntry(key, value, incremental_operation=operation)
        change = ConfigResource(kind, name, incremental_configs=[entry])
        return admin.incremental_alter_configs([change])

    def test_a_config_has_its_source(self, admin, new_topic):
        configs = self.of_topic(admin, new_topic(retention_ms=1000))
        assert configs["retention.ms"].value == "1000"
        assert configs["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        assert configs["max.message.bytes"].value == "1000000"
        assert configs["max.message.bytes"].source == ConfigSource.STATIC_BROKER_CONFIG.value
        assert configs["segment.bytes"].value == str(1 << 30)
        assert configs["segment.bytes"].source == ConfigSource.DEFAULT_CONFIG.value

    def test_synonyms_are_listed_in_order_of_precedence(self, admin, new_topic):
        configs = self.of_topic(admin, new_topic(retention_ms=1000))
        assert list(configs["retention.ms"].synonyms) == [
            "retention.ms",
            "log.retention.ms",
            "log.retention.hours",
        ]
        assert list(configs["segment.bytes"].synonyms) == ["log.segment.bytes"]

    def test_a_topics_config_is_set_and_returns_to_its_default_when_deleted(self, admin, new_topic, writer):
        topic = new_topic()
        kind = ResourceType.TOPIC
        result(self.alter(admin, kind, topic, "max.message.bytes", "1000"))

        def refused() -> bool:
            try:
                writer.write(topic, [Sent(b"v" * 2000)])
            except Refused as error:
                return str(error) == "MESSAGE_TOO_LARGE"
            return False

        eventually(refused)  # the broker is notified after the client has its answer
        result(self.alter(admin, kind, topic, "max.message.bytes", None, AlterConfigOpType.DELETE))
        eventually(lambda: not refused())
        assert self.of_topic(admin, topic)["max.message.bytes"].value == "1000000"

    def test_lists_are_added_to_and_taken_from(self, admin, new_topic):
        topic, kind = new_topic(), ResourceType.TOPIC
        result(self.alter(admin, kind, topic, "cleanup.policy", "compact", AlterConfigOpType.APPEND))
        assert self.of_topic(admin, topic)["cleanup.policy"].value == "delete,compact"
        result(self.alter(admin, kind, topic, "cleanup.policy", "delete", AlterConfigOpType.SUBTRACT))
        assert self.of_topic(admin, topic)["cleanup.policy"].value == "compact"

    @pytest.mark.parametrize(("key", "value"), [("retention.ms", "soon"), ("no.such.config", "1")])
    def test_a_bad_config_is_refused_and_changes_nothing(self, admin, new_topic, key, value):
        topic = new_topic()
        assert error_name(self.alter, admin, ResourceType.TOPIC, topic, key, value) == "INVALID_CONFIG"
        assert self.of_topic(admin, topic)["retention.ms"].value == "-1"

    def test_a_brokers_dynamic_config_takes_effect_at_once_also_for_its_topics(self, admin, new_topic):
        topic, kind = new_topic(), ResourceType.BROKER
        result(self.alter(admin, kind, "0", "log.segment.bytes", "50000000"))
        try:
            eventually(lambda: self.of_topic(admin, topic)["segment.bytes"].value == "50000000")
            entry = self.of_topic(admin, topic)["segment.bytes"]
            assert entry.source == ConfigSource.DYNAMIC_BROKER_CONFIG.value
        finally:
            result(self.alter(admin, kind, "0", "log.segment.bytes", None, AlterConfigOpType.DELETE))
            # Other tests share the broker.
            eventually(lambda: self.of_topic(admin, topic)["segment.bytes"].value == str(1 << 30))

    def test_a_brokers_static_config_cannot_be_altered(self, admin):
        name = error_name(self.alter, admin, ResourceType.BROKER, "0", "log.dirs", "elsewhere")
        assert name == "INVALID_REQUEST"

    def test_passwords_are_not_shown(self, admin):
        configs = result(admin.describe_configs([ConfigResource(ResourceType.BROKER, "0")]))
        assert configs["ssl.key.password"].is_sensitive
        assert configs["ssl.key.password"].value is None
        assert configs["broker.id"].is_read_only


class TestOffsets:
    def offsets(self, admin, topic, spec, **kwargs):
        where = confluent_kafka.TopicPartition(topic, 0)
        found = result(admin.list_offsets({where: spec}, **kwargs))
        return found.offset, found.timestamp

    def test_by_time_it_is_the_first_record_at_or_after_it(self, admin, new_topic, writer):
        topic = new_topic()
        writer.write(topic, [Sent(b"v", timestamp_ms=1000 * n) for n in (1, 2, 3, 5, 4)])
        for time_ms, expected in [(0, (0, 1000)), (1001, (1, 2000)), (3000, (2, 3000)), (3500, (3, 5000))]:
            assert self.offsets(admin, topic, OffsetSpec.for_timestamp(time_ms)) == expected
        assert self.offsets(admin, topic, OffsetSpec.for_timestamp(9000)) == (-1, -1)

    def test_earliest_latest_and_the_greatest_timestamp(self, admin, new_topic, writer):
        topic = new_topic()
        assert self.offsets(admin, topic, OffsetSpec.max_timestamp()) == (-1, -1)
        writer.write(topic, [Sent(b"v", timestamp_ms=1000 * n) for n in (1, 3, 2)])
        assert self.offsets(admin, topic, OffsetSpec.earliest()) == (0, -1)
        assert self.offsets(admin, topic, OffsetSpec.latest()) == (3, -1)
        assert self.offsets(admin, topic, OffsetSpec.max_timestamp()) == (1, 3000)

    def test_no_consumer_gets_deleted_records(self, admin, client, new_topic, writer):
        topic = new_topic()
        writer.write(topic, [Sent(b"%d" % n) for n in range(10)])
        deleted = result(admin.delete_records([confluent_kafka.TopicPartition(topic, 0, 4)]))
        assert deleted.low_watermark == 4
        assert self.offsets(admin, topic, OffsetSpec.earliest()) == (4, -1)
        with pytest.raises(Refused, match="OFFSET_OUT_OF_RANGE"):
            client.read(topic, start=3)
        assert [record.offset for record in client.read(topic, start=4)] == [4, 5, 6, 7, 8, 9]

    def test_all_records_are_deleted_up_to_the_end_and_not_beyond(self, admin, new_topic, writer):
        topic = new_topic()
        writer.write(topic, [Sent(b"v")])
        beyond = [confluent_kafka.TopicPartition(topic, 0, 2)]
        assert error_name(admin.delete_records, beyond) == "OFFSET_OUT_OF_RANGE"
        to_the_end = [confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_END)]
        assert result(admin.delete_records(to_the_end)).low_watermark == 1
        assert writer.write(topic, [Sent(b"v")]) == [1]

    def test_kafka_python_finds_offsets_by_time(self, broker, new_topic, writer):
        topic = new_topic()
        writer.write(topic, [Sent(b"v", timestamp_ms=1000 * n) for n in (1, 2, 3)])
        where = kafka.TopicPartition(topic, 0)
        consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
        try:
            found = consumer.offsets_for_times({where: 1500})[where]
            assert (found.offset, found.timestamp) == (1, 2000)
            assert consumer.offsets_for_times({where: 9000})[where] is None
            assert consumer.beginning_offsets([where])[where] == 0
            assert consumer.end_offsets([where])[where] == 3
        finally:
            consumer.close()


def test_the_cluster_is_described(admin, broker):
    described = admin.describe_cluster().result(TIMEOUT_S)
    assert len(described.cluster_id) == 22
    assert [f"{node.host}:{node.port}" for node in described.nodes] == [broker.bootstrap_servers]
    assert described.controller.id == 0


class TestReassignments:
    def test_what_cannot_be_reassigned_is_refused_with_its_reason(
        self, broker, kafka_python_admin, new_topic
    ) -> None:
        where = kafka.TopicPartition(new_topic(), 0)
        (own,) = (each["broker_id"] for each in kafka_python_admin.describe_cluster()["brokers"])
        gone = kafka.TopicPartition("no-such-topic", 0)

        def outcome(target: list[int] | None, partition=where):
            return kafka_python_admin.alter_partition_reassignments({partition: target})[partition]

        assert outcome([own]) is None
        assert outcome([own, own]) is InvalidReplicationAssignmentError
        assert outcome([own, own + 1]) is InvalidReplicationAssignmentError
        assert outcome(None) is NoReassignmentInProgressError
        assert outcome([own], gone) is UnknownTopicOrPartitionError
        assert kafka_python_admin.list_partition_reassignments() == {}
