"""Kafka's Java clients and its tools, of 3.9 and of 4.x, against a klog broker."""

from __future__ import annotations

import base64
import json
import re

import pytest

import klog
from klog.config.documentation import broker_documentation, topic_documentation
from tests.clients.brokers import klog_broker
from tests.clients.cutting_proxy import broker_behind_proxy
from tests.clients.python_clients import ConfluentKafka, Sent
from tests.peers.kafka import QUICK_FLAGS
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 300
TIMESTAMP_MS = 1_600_000_000_000
QUICK = QUICK_FLAGS


@pytest.fixture(scope="module")
def broker():
    """Only klog: no test must show that Kafka's clients understand Kafka."""
    with klog_broker() as process:
        yield process


@pytest.fixture(scope="session", params=["kafka3", "kafka4"])
def peer(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def java(peer, tools_of, broker):
    """Runs a main class against the broker; gives its standard output. Kafka's tools share a JVM."""

    def run(main_class, *args, stdin=b"", fails=False) -> str:
        if "." in main_class:
            ended = tools_of(peer).run(main_class, *args, stdin=stdin)
            text = ended.out + (ended.err if fails else "")
            assert (ended.status != 0) == fails, text + ended.err
            return text
        done = peer.java(main_class, *map(str, args), jvm_flags=QUICK, stdin=stdin, timeout_s=180)
        text = done.stdout.decode() + (done.stderr.decode() if fails else "")
        assert (done.returncode != 0) == fails, text + done.stderr.decode()
        return text

    return run


@pytest.fixture
def at(broker):
    return ("--bootstrap-server", broker.bootstrap_servers)


def java_records(count=COUNT, size=20):
    """What ProduceRecords writes: key, value, headers."""
    return [
        (
            None if n % 3 == 0 else b"key %d" % n,
            None if n % 3 == 1 else b"v" * size,
            (("number", b"%d" % n), ("none", None)),
        )
        for n in range(count)
    ]


def produce(java, broker, topics, *, acks="all", count=COUNT, size=20, timestamp=TIMESTAMP_MS):
    """Runs ProduceRecords for (topic, codec) pairs; gives its report on each topic."""
    pairs = [each for pair in topics for each in pair]
    said = java("ProduceRecords", broker.bootstrap_servers, acks, count, size, timestamp, *pairs)
    return dict(line.split(" ", 1) for line in said.splitlines())


def consume(java, broker, topics, tmp_path, isolation="read_uncommitted"):
    """What Kafka's consumer reads of partition 0 of each topic: an object per record, one about the end."""
    files = [tmp_path / f"{topic}.jsonl" for topic in topics]
    arguments = [each for topic, file in zip(topics, files, strict=True) for each in (topic, 0, file)]
    java("Consume", broker.bootstrap_servers, isolation, *arguments)
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


def plain(text):
    return None if text is None else base64.b64decode(text)


class TestClients:
    def test_what_java_writes_java_and_others_read_in_every_codec(self, java, broker, new_topic, tmp_path):
        topics = {codec: new_topic() for codec in CODECS}
        said = produce(java, broker, [(topic, codec) for codec, topic in topics.items()])
        assert said == dict.fromkeys(topics.values(), f"0 {COUNT - 1}")
        consumed = consume(java, broker, list(topics.values()), tmp_path, "read_committed")
        for (codec, topic), (*read, end) in zip(topics.items(), consumed, strict=True):
            assert [
                (
                    plain(one["key"]),
                    plain(one["value"]),
                    tuple((plain(k).decode(), plain(v)) for k, v in one["headers"]),
                )
                for one in read
            ] == java_records()
            assert [one["timestamp"] - TIMESTAMP_MS for one in read] == list(range(COUNT))
            assert (end["beginningOffset"], end["endOffset"]) == (0, COUNT)
            found = ConfluentKafka(broker.bootstrap_servers).read(topic)
            assert [(one.key, one.value, one.headers) for one in found] == java_records(), codec

    def test_what_python_writes_java_reads(self, java, broker, new_topic, every_client, tmp_path):
        records = [Sent(b"value %d" % n, b"key", (("h", b"1"),), TIMESTAMP_MS + n) for n in range(50)]
        topics = [new_topic(message_timestamp_type=kind) for kind in ("CreateTime", "LogAppendTime")]
        for topic in topics:
            for client in every_client:
                client.write(topic, records, codec="lz4", idempotent=True)
        created, appended = consume(java, broker, topics, tmp_path)
        for read in (created, appended):
            assert [plain(one["value"]) for one in read[:-1]] == [each.value for each in records] * 3
        assert {one["timestampType"] for one in created[:-1]} == {"CreateTime"}
        assert {one["timestampType"] for one in appended[:-1]} == {"LogAppendTime"}
        assert [one["timestamp"] for one in created[:-1]] == [each.timestamp_ms for each in records] * 3

    def test_a_java_producer_is_refused_as_by_kafka(self, java, broker, new_topic):
        small, compacted = new_topic(max_message_bytes=1000), new_topic(cleanup_policy="compact")
        aged = new_topic(message_timestamp_before_max_ms=1000)
        # One record each. The client would split a larger batch that is refused; if the halves fit into one
        # batch.size, it would send them together again and again, to Kafka as well.
        topics = [(small, "none"), (compacted, "none"), (aged, "none")]
        said = produce(java, broker, topics, count=1, size=2000)
        assert said == {
            small: "RecordTooLargeException",
            compacted: "InvalidRecordException",
            aged: "InvalidTimestampException",
        }

    @pytest.mark.parametrize("acks", ["0", "1"])
    def test_a_java_producer_that_waits_for_less(self, java, broker, new_topic, acks):
        topic = new_topic()
        produce(java, broker, [(topic, "snappy")], acks=acks)
        reader = ConfluentKafka(broker.bootstrap_servers)
        eventually(lambda: len(reader.read(topic)) == COUNT)

    def test_nothing_is_written_twice_or_lost_when_connections_break(self, peer):
        count = 2000
        with broker_behind_proxy(peer.major, chunks=12) as (broker, proxy):
            broker.create_topic("t")
            arguments = (proxy.address, "all", count, 100, TIMESTAMP_MS, "t", "none")
            done = peer.java("ProduceRecords", *map(str, arguments), jvm_flags=QUICK, timeout_s=180)
            assert done.stdout.decode().split() == ["t", "0", str(count - 1)]
            proxy.spare()
            records = klog.open(str(broker.partition_dir("t"))).records()
            assert [int(record.headers[0].value) for record in records] == list(range(count))
            assert proxy.cuts >= 3, "nothing was put to the test"


class TestTools:
    def test_kafka_topics(self, java, at, broker, peer):
        tool, topic = "org.apache.kafka.tools.TopicCommand", f"by-tool-{peer.major}"
        options = ("--partitions", 2, "--config", "retention.ms=1000")
        assert f"Created topic {topic}." in java(tool, *at, "--create", "--topic", topic, *options)
        java(tool, *at, "--alter", "--topic", topic, "--partitions", 3)
        described = java(tool, *at, "--describe", "--topic", topic).splitlines()
        assert re.search(
            r"TopicId: \S{22}\tPartitionCount: 3\tReplicationFactor: 1\t.*retention.ms=1000", described[0]
        )
        assert len(described) == 4
        assert re.search(r"Partition: 2\s+Leader: 0\s+Replicas: 0\s+Isr: 0", described[3])
        assert "already exists" in java(tool, *at, "--create", "--topic", topic, fails=True)
        java(tool, *at, "--delete", "--topic", topic)
        assert topic not in java(tool, *at, "--list").split()

    def test_kafka_configs(self, java, at, new_topic):
        tool, topic = "kafka.admin.ConfigCommand", new_topic()
        entity = ("--entity-type", "topics", "--entity-name", topic)
        java(
            tool, *at, *entity, "--alter", "--add-config", "retention.ms=1000,cleanup.policy=[compact,delete]"
        )
        java(tool, *at, *entity, "--alter", "--delete-config", "cleanup.policy")
        described = java(tool, *at, *entity, "--describe")
        assert re.search(
            r"retention.ms=1000 sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG:retention.ms=1000", described
        )
        assert "cleanup.policy" not in described
        of_broker = java(tool, *at, "--entity-type", "brokers", "--entity-name", 0, "--describe", "--all")
        assert re.search(
            r"message.max.bytes=1000000 .*STATIC_BROKER_CONFIG:message.max.bytes=1000000", of_broker
        )
        assert "DEFAULT_CONFIG:num.replica.fetchers=1" in of_broker

    def test_kafka_get_offsets_and_kafka_delete_records(self, java, at, broker, new_topic, tmp_path):
        topic, offsets = new_topic(), "org.apache.kafka.tools.GetOffsetShell"
        records = [Sent(b"v", timestamp_ms=TIMESTAMP_MS + 1000 * n) for n in range(10)]
        ConfluentKafka(broker.bootstrap_servers).write(topic, records)
        asked = tmp_path / "delete.json"
        wanted = {"topic": topic, "partition": 0, "offset": 4}
        asked.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
        deleted = java("org.apache.kafka.tools.DeleteRecordsCommand", *at, "--offset-json-file", asked)
        assert re.search(rf"partition: {topic}-0\s+low_watermark: 4", deleted)
        for time, expected in [(-1, 10), (-2, 4), (TIMESTAMP_MS + 6500, 7), ("max-timestamp", 9)]:
            said = java(offsets, *at, "--topic", topic, "--time", time)
            assert said.strip() == f"{topic}:0:{expected}"

    def test_kafka_log_dirs(self, java, at, broker, new_topic):
        topic = new_topic(partitions=2)
        said = java("org.apache.kafka.tools.LogDirsCommand", *at, "--describe", "--topic-list", topic)
        (answer,) = json.loads(said.splitlines()[-1])["brokers"]
        directories = {each["logDir"]: each for each in answer["logDirs"]}
        assert set(directories) == set(map(str, broker.log_dirs))
        assert all(each["error"] is None for each in directories.values())
        found = {part["partition"] for each in directories.values() for part in each["partitions"]}
        assert found == {f"{topic}-0", f"{topic}-1"}

    def test_kafka_dump_log_reads_the_brokers_files(self, java, peer, broker, new_topic):
        topic = new_topic(index_interval_bytes=100)
        written = [Sent(b"value %d" % n, b"key", timestamp_ms=TIMESTAMP_MS + n) for n in range(100)]
        client = ConfluentKafka(broker.bootstrap_servers)
        for start in range(0, 100, 10):
            client.write(topic, written[start : start + 10], codec="zstd")
        files = sorted(broker.partition_dir(topic).glob("0*.log"))
        said = java("kafka.tools.DumpLogSegments", "--print-data-log", "--files", ",".join(map(str, files)))
        # A slow client may send two batches.
        assert said.count("isvalid: true") == said.count("baseOffset: ") >= 10
        assert re.findall(r"payload: (.*)", said) == [each.value.decode() for each in written]

    def test_kafka_console_producer(self, java, peer, at, broker, new_topic):
        topic = new_topic()
        tool = "kafka.tools.ConsoleProducer" if peer.major == 3 else "org.apache.kafka.tools.ConsoleProducer"
        properties = ("--property", "parse.key=true", "--property", "key.separator=:")
        java(tool, *at, "--topic", topic, *properties, stdin=b"a:1\nb:2\n\xc3\xa9:3\n")
        read = ConfluentKafka(broker.bootstrap_servers).read(topic)
        assert [(one.key, one.value) for one in read] == [(b"a", b"1"), (b"b", b"2"), ("é".encode(), b"3")]

    def test_kafka_producer_perf_test(self, java, broker, new_topic):
        topic = new_topic(partitions=1)
        said = java(
            *("org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", 20_000),
            *("--record-size", 100, "--throughput", -1, "--producer-props"),
            *(f"bootstrap.servers={broker.bootstrap_servers}", "compression.type=lz4"),
        )
        assert "20000 records sent" in said
        assert ConfluentKafka(broker.bootstrap_servers).read(topic, start=19_999)[0].offset == 19_999

    def test_kafka_console_consumer_and_kafka_consumer_groups(self, java, peer, at, broker, new_topic):
        topic, group = new_topic(), f"console-{peer.major}"
        ConfluentKafka(broker.bootstrap_servers).write(topic, [Sent(b"%d" % number) for number in range(30)])
        console = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        reading = ("--topic", topic, "--group", group, "--from-beginning", "--timeout-ms", 120_000)
        assert java(console, *at, *reading, "--max-messages", 20).split() == [str(n) for n in range(20)]
        assert java(console, *at, *reading, "--max-messages", 10).split() == [str(n) for n in range(20, 30)]

        tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        assert group in java(tool, *at, "--list").split()
        shown = java(tool, *at, "--describe", "--group", group)
        (line,) = (each.split() for each in shown.splitlines() if topic in each)
        assert line[:6] == [group, topic, "0", "30", "30", "0"]
        assert "Empty" in java(tool, *at, "--describe", "--group", group, "--state")
        back = ("--reset-offsets", "--group", group, "--topic", topic, "--to-offset", 12, "--execute")
        assert "12" in java(tool, *at, *back).split()
        assert java(console, *at, *reading, "--max-messages", 1).split() == ["12"]
        removed = java(tool, *at, "--delete-offsets", "--group", group, "--topic", topic)
        assert "Successful" in removed
        java(tool, *at, *back)
        assert "was successful" in java(tool, *at, "--delete", "--group", group)
        assert group not in java(tool, *at, "--list").split()


@pytest.mark.parametrize(
    ("kind", "expected"), [("TOPIC", topic_documentation()), ("BROKER", broker_documentation())]
)
def test_the_admin_client_gets_the_documentation_of_configs(java, at, broker, kind, expected) -> None:
    name = "documented" if kind == "TOPIC" else "0"
    if kind == "TOPIC":
        java("org.apache.kafka.tools.TopicCommand", *at, "--create", "--if-not-exists", "--topic", name)
    line = ("DescribeDocumentation", broker.bootstrap_servers, kind, name)
    told = dict(each.split("\t") for each in java(*line, "true").splitlines())
    assert told
    assert told == {each: expected[each] for each in told}
    unasked = dict(each.split("\t") for each in java(*line, "false").splitlines())
    assert set(unasked.values()) == {"null"}
