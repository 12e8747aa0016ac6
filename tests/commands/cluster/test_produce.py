"""`klog produce`: how it parses its input, and what kafka-python then reads from real clusters."""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import KafkaConsumer, TopicPartition

from klog.client.producer import Record
from klog.commands.shared.records.input_lines import Input, LineFormat, json_parser, split_lines, text_parser
from klog.commands.shared.records.plan import BytesMode
from klog.formats.errors import FormatError
from tests.processes import child
from tests.waiting import eventually


def stored(cluster, topic, partition=0, **settings):
    """All records of a partition as kafka-python reads them."""
    consumer = KafkaConsumer(
        bootstrap_servers=cluster,
        auto_offset_reset="earliest",
        group_id=None,
        consumer_timeout_ms=100,
        **settings,
    )
    place = TopicPartition(topic, partition)
    try:
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        found = []
        while consumer.position(place) < end:
            for records in consumer.poll(1000).values():
                found += records
        return found
    finally:
        consumer.close()


def topic_with(klog, config):
    """A topic with a config from its start: brokers take over a change only after the answer to it."""
    name = f"configured-{uuid.uuid4().hex[:8]}"
    assert klog("topics", "create", name, "--partitions", 1, "--config", config).code == 0
    return name


@pytest.fixture
def stdin(monkeypatch):
    """Gives the next command some input."""

    def give(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return give


def test_arguments_are_records(klog, cluster, topic):
    outcome = klog("produce", topic, "one", "zwei \N{SNOWMAN}", "")
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err == f"3 records delivered to {topic} (partition 0 offsets 0 to 2)\n"
    assert [record.value for record in stored(cluster, topic)] == [b"one", "zwei \N{SNOWMAN}".encode(), b""]


def test_lines_of_stdin_are_records_with_keys_and_nulls(klog, cluster, topic, stdin):
    stdin(b"a:1\nb:NULL\nNULL:c:d\n\xff:\xfe")
    assert klog("produce", topic, "-K", ":", "--null", "NULL", "--quiet").err == ""
    assert [(record.key, record.value) for record in stored(cluster, topic)] == [
        (b"a", b"1"),
        (b"b", None),
        (None, b"c:d"),
        (b"\xff", b"\xfe"),
    ]


def test_every_record_gets_the_key_headers_and_timestamp_given(klog, cluster, topic):
    moment = "2026-01-02T03:04:05.678Z"
    klog("produce", topic, "x", "-k", "key", "-H", "a=1", "-H", "a=2=3", "-H", "none", "--timestamp", moment)
    (record,) = stored(cluster, topic)
    assert record.key == b"key"
    assert record.timestamp == int(datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC).timestamp() * 1000)
    assert list(record.headers) == [("a", b"1"), ("a", b"2=3"), ("none", None)]


def test_without_a_timestamp_it_is_now(klog, cluster, topic):
    before_ms = time.time_ns() // 1_000_000
    klog("produce", topic, "x")
    (record,) = stored(cluster, topic)
    assert before_ms <= record.timestamp <= time.time_ns() // 1_000_000


def test_files_are_records_line_by_line_or_whole(klog, cluster, topic, tmp_path):
    file = tmp_path / "records"
    file.write_bytes(b"a;b\n;c")
    klog("produce", topic, "--file", file, "--delimiter", ";")
    klog("produce", topic, "--file", file, "--file", file, "--whole")
    assert [record.value for record in stored(cluster, topic)] == [b"a", b"b\n", b"c", b"a;b\n;c", b"a;b\n;c"]
    missing = klog("produce", topic, "--file", tmp_path / "missing")
    assert missing.code == 1
    assert "missing: cannot be opened: No such file or directory" in missing.err


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_stored_as_asked(klog, topic, stdin, codec):
    stdin(b"some text " * 100)
    assert klog("produce", topic, "--compression-type", codec).code == 0
    assert json.loads(klog("consume", topic, "-f", "jsonl").out)["codec"] == codec


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_by_the_broker(klog, cluster, stdin, codec):
    # If the topic has another codec, the broker decompresses the records and compresses them again.
    topic = topic_with(klog, "compression.type=uncompressed")
    lines = [b"line %d of some length" % number for number in range(3000)]
    stdin(b"\n".join(lines))
    assert klog("produce", topic, "--compression-type", codec).code == 0
    assert [record.value for record in stored(cluster, topic)] == lines


def test_keys_go_where_kafka_sends_them_and_partitions_can_be_given(klog, cluster, topic, stdin):
    klog("topics", "add-partitions", topic, "--partitions", 5)
    keys = [b"k%d" % number for number in range(50)]
    stdin(b"".join(key + b":\n" for key in keys))
    outcome = klog("produce", topic, "-K", ":")
    assert outcome.code == 0, outcome.err
    from kafka.partitioner.default import murmur2

    for partition in range(5):
        expected = [key for key in keys if (murmur2(key) & 0x7FFFFFFF) % 5 == partition]
        assert [record.key for record in stored(cluster, topic, partition)] == expected
    assert klog("produce", topic, "x", "--partition", 4).code == 0
    assert stored(cluster, topic, 4)[-1].value == b"x"
    beyond = klog("produce", topic, "x", "--partition", 5)
    assert beyond.code == 1
    assert f"topic {topic} has 5 partitions, there is no 5" in beyond.err


@pytest.mark.parametrize("acks", ["0", "1", "all", "-1"])
def test_acks_are_kafkas(klog, cluster, topic, acks):
    # With acks=0 nobody is told if the leader does not know yet that it leads.
    eventually(lambda: klog("offsets", topic).code == 0)
    assert klog("produce", topic, "x", "--acks", acks).code == 0
    eventually(lambda: stored(cluster, topic))  # with acks=0 nobody knows when it has arrived
    assert [record.value for record in stored(cluster, topic)] == [b"x"]


def test_idempotence_goes_with_acks_all(klog, topic):
    klog("produce", topic, "x", "y")
    klog("produce", topic, "x", "--no-idempotence")
    klog("produce", topic, "x", "--acks", "1")
    rows = [json.loads(line) for line in klog("consume", topic, "-f", "jsonl").out.splitlines()]
    assert [row["producerId"] >= 0 for row in rows] == [True, True, False, False]
    assert [row["sequence"] for row in rows] == [0, 1, -1, -1]
    assert klog("produce", topic, "x", "--acks", "1", "--idempotence").code == 2


def test_what_is_too_large_fails_alone(klog, cluster, stdin):
    topic = topic_with(klog, "max.message.bytes=2000")
    small = [b"%0100d" % number for number in range(100)]
    stdin(b"\n".join([*small[:50], b"x" * 5000, *small[50:]]))
    outcome = klog("produce", topic)
    assert outcome.code == 1
    assert "klog: 1 record not delivered" in outcome.err
    assert "MESSAGE_TOO_LARGE" in outcome.err
    assert "100 records delivered" in outcome.err
    assert [record.value for record in stored(cluster, topic)] == small


def test_refused_records_do_not_take_the_others_of_their_batch_with_them(klog, cluster, stdin):
    topic = topic_with(klog, "cleanup.policy=compact")
    stdin(b"a:1\n-:2\nb:3\n-:4\nc:5")
    outcome = klog("produce", topic, "-K", ":", "--null", "-")
    assert outcome.code == 1
    assert "klog: 2 records not delivered" in outcome.err
    assert "INVALID_RECORD" in outcome.err
    assert [record.key for record in stored(cluster, topic)] == [b"a", b"b", b"c"]


def test_a_line_that_cannot_be_understood_stops_with_its_number(klog, cluster, topic, stdin):
    stdin(b"a:1\nb:2\nnothing\nc:3")
    outcome = klog("produce", topic, "-K", ":")
    assert outcome.code == 1
    assert "2 records delivered" in outcome.err
    assert "stdin line 3: no key delimiter ':' in 'nothing'" in outcome.err
    assert len(stored(cluster, topic)) == 2


def test_what_was_consumed_as_json_lines_can_be_written_again(klog, cluster, topic, stdin):
    klog("topics", "create", f"{topic}-again", "--partitions", 3)
    klog("topics", "add-partitions", topic, "--partitions", 3)
    stdin(b"a:1\nb:NULL\n\xff:\xfe\nNULL:x")
    klog("produce", topic, "-K", ":", "--null", "NULL", "-H", "h=\xe9", "-H", "n")
    klog("produce", topic, "late", "--timestamp", "86400000", "--partition", 2)
    dumped = klog("consume", topic, "-f", "jsonl").out
    stdin(dumped.encode())
    assert klog("produce", f"{topic}-again", "-f", "jsonl").code == 0
    columns = "%p %o %k %s %h %T"
    shown = sorted(klog("consume", topic, "-f", columns, "--bytes", "hex").out.splitlines())
    assert len(shown) == 5
    assert (
        sorted(klog("consume", f"{topic}-again", "-f", columns, "--bytes", "hex").out.splitlines()) == shown
    )


@pytest.mark.parametrize(
    "options",
    [
        ("x", "--file", "f"),
        ("--whole",),
        ("x", "--delimiter", ""),
        ("x", "--key", "a", "--key-delimiter", ":"),
        ("x", "--key-delimiter", ""),
        ("x", "-f", "jsonl", "--null", "-"),
        ("x", "-f", "jsonl", "--bytes", "none"),
        ("x", "--timestamp", "soon"),
        ("x", "-D", r"\q"),
    ],
)
def test_invalid_combinations_of_options_are_wrong_usage(klog, topic, options):
    assert klog("produce", topic, *options).code == 2


def unread_bytes(pipe):
    (size,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return size


def test_lines_are_delivered_as_they_arrive(cluster, topic):
    command = [str(Path(sys.executable).with_name("klog")), "produce", topic, "--bootstrap-server", cluster]
    with child(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ) as process:
        assert process.stdin is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        eventually(lambda: stored(cluster, topic))
        assert [record.value for record in stored(cluster, topic)] == [b"first"]
        # It reads on when it has the broker's answer, and thus knows that the line is delivered.
        process.stdin.write(b"no line yet")
        process.stdin.flush()
        eventually(lambda: unread_bytes(process.stdin) == 0)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.decode() == f"1 record delivered to {topic} (partition 0 offset 0)\n"


NULLS = st.none() | st.binary(max_size=20)


@given(NULLS, NULLS, st.lists(st.tuples(st.binary(max_size=9), NULLS), max_size=3))
def test_any_record_is_equal_after_json_lines(key, value, headers):
    def shown(data):
        return None if data is None else data.hex()

    line = json.dumps(
        {"key": shown(key), "value": shown(value), "headers": [[shown(n), shown(v)] for n, v in headers]}
    )
    parsed = json_parser(LineFormat(), BytesMode.HEX)(line.encode())
    assert parsed == Input(Record(key, value, headers))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"{}", 'no "value"'),
        (b'{"value": 1}', "not a string"),
        (b'{"value": {"size": 3}}', "redacted"),
        (b'{"value": {"base64": "?"}}', "value"),
        (b'{"value": "\\ud800"}', "value"),
        (b'{"value": "a", "partition": "b"}', "not an integer"),
        (b'{"value": "a", "partition": true}', "not an integer"),
        (b'{"value": "a", "timestamp": 9223372036854775808}', "not an integer"),
        (b'{"value": "a", "headers": [["b"]]}', "pair"),
        (b'{"value": "a", "headers": [[null, "b"]]}', "null"),
        (b'{"value": "a", "headers": 1}', "not a list"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_json_that_is_not_a_record_is_an_error(line, problem):
    with pytest.raises(FormatError, match=problem):
        json_parser(LineFormat(), BytesMode.AUTO)(line)


def test_control_records_of_a_dump_are_skipped():
    assert json_parser(LineFormat(), BytesMode.AUTO)(b'{"value": "a", "isControl": true}') is None


def test_key_sets_the_key_of_every_line():
    assert text_parser(LineFormat(key=b"k"))(b"v") == Input(Record(b"k", b"v"))


@given(
    st.lists(st.binary(max_size=30).filter(lambda line: b"--" not in line and not line.endswith(b"-"))),
    st.data(),
)
def test_records_are_complete_however_the_stream_is_cut(lines, data):
    lines = [line.replace(b"-", b"_") for line in lines if line]
    stream = b"--".join(lines)
    pieces = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        pieces.append(stream[:size])
        stream = stream[size:]
    assert [line for whole in split_lines(iter(pieces), b"--") for line in whole] == lines


def test_a_keyless_record_in_a_compacted_topic_is_told_as_that(klog):
    single = klog("produce", topic_with(klog, "cleanup.policy=compact"), "no key")
    assert single.code == 1
    assert "INVALID_RECORD" in single.err
    assert re.search("without (a )?key", single.err)


def test_a_failure_before_the_first_record_says_only_what_failed(klog, topic, tmp_path):
    done = klog("produce", topic, "--file", tmp_path / "missing")
    assert (done.code, done.out) == (1, "")
    assert done.err.count("\n") == 1
