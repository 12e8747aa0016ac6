"""`klog consume`: which records it reads, how it prints them, and how it ends, on real clusters."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kafka import KafkaProducer

from klog.commands.shared.records.output_buffer import OutputBuffer
from klog.commands.shared.records.plan import BytesMode
from klog.commands.shared.records.template import LineStyle, Template, unescape
from klog.formats.errors import UsageError
from tests.commands.clusters import WITH_TRANSACTIONS
from tests.processes import child
from tests.waiting import eventually

KLOG = str(Path(sys.executable).with_name("klog"))


@pytest.fixture
def written(cluster, topic):
    """Ten records by another client: keys k0 to k9, values v0 to v9, timestamps 0 to 9 seconds."""
    producer = KafkaProducer(bootstrap_servers=cluster, compression_type="gzip", linger_ms=50)
    for number in range(10):
        headers = [("h", b"%d" % number), ("e", b"")] if number % 2 else []
        producer.send(topic, b"v%d" % number, b"k%d" % number, headers, timestamp_ms=number * 1000)
    producer.flush()
    producer.close()
    return topic


def shown(klog, *arguments):
    outcome = klog("consume", *arguments)
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.out


def numbers(text):
    return [int(line.removeprefix("v")) for line in text.splitlines()]


def test_all_values_come_in_order_and_reading_ends(klog, written):
    assert numbers(shown(klog, written)) == list(range(10))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--offsets", "3..5"), range(3, 6)),
        (("--offsets", "7.."), range(7, 10)),
        (("--offsets", "..2"), range(3)),
        (("--offsets", "4"), [4]),
        (("--offsets", "50.."), []),
        (("--since", "4000"), range(4, 10)),
        (("--until", "4000"), range(4)),
        (("--since", "1970-01-01T00:00:02Z", "--until", "1970-01-01T00:00:05Z"), range(2, 5)),
        (("--since", "1h"), []),
        (("--last", "3"), range(7, 10)),
        (("--last", "0"), []),
        (("--limit", "3"), range(3)),
        (("--limit", "0"), []),
        (("--last", "5", "--limit", "2"), [5, 6]),
        (("--key", "k3"), [3]),
        (("--grep", "[v]8|k9"), [8, 9]),
        (("--grep", "v", "--limit", "2"), [0, 1]),
        (("--partition", "0"), range(10)),
    ],
)
def test_records_are_selected_by_offset_time_and_content(klog, written, options, expected):
    assert numbers(shown(klog, written, *options)) == list(expected)


def test_deleted_records_are_skipped(klog, cluster, written):
    from kafka import TopicPartition
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=cluster)
    admin.delete_records({TopicPartition(written, 0): 4})
    admin.close()
    assert numbers(shown(klog, written)) == list(range(4, 10))
    assert numbers(shown(klog, written, "--offsets", "2..5")) == [4, 5]


def test_several_topics_and_partitions_come_together(klog, topic):
    klog("topics", "add-partitions", topic, "--partitions", 3)
    for partition in range(3):
        klog("produce", topic, f"a{partition}", f"b{partition}", "--partition", partition)
    lines = shown(klog, topic, "-f", "%p %s").splitlines()
    assert sorted(lines) == ["0 a0", "0 b0", "1 a1", "1 b1", "2 a2", "2 b2"]
    assert [line for line in lines if line[0] == "1"] == ["1 a1", "1 b1"]
    two = shown(klog, topic, "--partition", 2, "--partition", 0, "-f", "%p %s").splitlines()
    assert sorted(two) == ["0 a0", "0 b0", "2 a2", "2 b2"]


def test_formats_have_the_tokens_of_kcat(klog, written):
    text = shown(
        klog, written, "-f", "%t[%p] %o %T %k(%K)=%s(%S) %h %%\\n", "--null", "-", "--offsets", "8..9"
    )
    assert text == f"{written}[0] 8 8000 k8(2)=v8(2)  %\n{written}[0] 9 9000 k9(2)=v9(2) h=9,e= %\n"
    assert shown(klog, written, "-f", "%R", "-D", "", "--limit", 1) == "\0\0\0\2"


def test_keys_and_nulls_and_delimiters_in_lines(klog, topic):
    klog("produce", topic, "a=1", "b=NIL", "-K", "=", "--null", "NIL")
    assert shown(klog, topic, "-K", "=>", "--null", "(null)", "-D", ";") == "a=>1;b=>(null);"
    assert shown(klog, topic) == "1\n\n"


@pytest.mark.parametrize(
    ("mode", "lines", "value", "key"),
    [
        ("auto", b"\xff\n\xe2\x98\x83\n", {"base64": "/w=="}, "\N{SNOWMAN}"),
        ("utf8", b"\xef\xbf\xbd\n\xe2\x98\x83\n", "\N{REPLACEMENT CHARACTER}", "\N{SNOWMAN}"),
        ("base64", b"/w==\n4piD\n", "/w==", "4piD"),
        ("hex", b"ff\ne29883\n", "ff", "e29883"),
        ("none", b"1\n3\n", {"size": 1}, {"size": 3}),
    ],
)
def test_bytes_are_shown_as_asked(klog, cluster, topic, tmp_path, mode, lines, value, key):
    file = tmp_path / "value"
    file.write_bytes(b"\xff")
    klog("produce", topic, "--file", file, "--key", "\N{SNOWMAN}")
    command = [KLOG, "consume", topic, "-b", cluster, "-f", "%s\\n%k\\n", "--bytes", mode]
    assert subprocess.run(command, capture_output=True, check=True).stdout == lines
    row = json.loads(shown(klog, topic, "-f", "jsonl", "--bytes", mode))
    assert (row["value"], row["key"]) == (value, key)


def test_json_lines_have_the_fields_of_a_dump_that_the_wire_carries(klog, written):
    rows = [json.loads(line) for line in shown(klog, written, "-f", "jsonl").splitlines()]
    assert rows[9] == {
        "topic": written,
        "partition": 0,
        "offset": 9,
        "timestamp": 9000,
        "timestampType": "CreateTime",
        "key": "k9",
        "value": "v9",
        "headers": [["h", "9"], ["e", ""]],
        "magic": 2,
        "codec": "gzip",
        "isTransactional": False,
        "isControl": False,
        "controlType": None,
        "coordinatorEpoch": None,
        "producerId": rows[9]["producerId"],
        "producerEpoch": rows[9]["producerEpoch"],
        "sequence": rows[9]["sequence"],
        "leaderEpoch": 0,
        "batchBaseOffset": rows[9]["batchBaseOffset"],
        "batchPosition": -1,
        "recordSize": rows[9]["recordSize"],
    }


def transactional(cluster, topic, name, values, *, commit):
    producer = KafkaProducer(bootstrap_servers=cluster, transactional_id=name, linger_ms=0)
    producer.init_transactions()
    producer.begin_transaction()
    for value in values:
        producer.send(topic, value)
    producer.flush()
    if commit is not None:
        (producer.commit_transaction if commit else producer.abort_transaction)()
    return producer


@pytest.mark.parametrize("cluster", WITH_TRANSACTIONS, indirect=True)
def test_committed_readers_see_committed_records_and_no_reader_sees_markers(klog, cluster, topic):
    one = transactional(cluster, topic, f"{topic}-1", [b"v1", b"v2"], commit=True)
    two = transactional(cluster, topic, f"{topic}-2", [b"v3"], commit=False)
    three = transactional(cluster, topic, f"{topic}-3", [b"v4"], commit=True)
    klog("produce", topic, "v5")
    open_one = transactional(cluster, topic, f"{topic}-4", [b"v6"], commit=None)
    klog("produce", topic, "v7")

    def committed() -> list[int]:
        return numbers(shown(klog, topic, "--isolation-level", "read_committed"))

    try:
        assert numbers(shown(klog, topic)) == [1, 2, 3, 4, 5, 6, 7]
        eventually(lambda: committed() == [1, 2, 4, 5])  # Kafka writes markers after its answer
    finally:
        open_one.abort_transaction()
        for producer in (one, two, three, open_one):
            producer.close()
    eventually(lambda: committed() == [1, 2, 4, 5, 7])


def test_following_shows_new_records_and_ends_with_ctrl_c(klog, cluster, written):
    command = [KLOG, "consume", written, "-b", cluster, "--follow", "--last", "1"]
    with child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"v9\n"
        klog("produce", written, "new")
        assert process.stdout.readline() == b"new\n"
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=60)
    assert (process.returncode, rest, said) == (130, b"", b"")


def test_an_interrupted_write_is_not_repeated():
    written = []

    class Interrupted(io.BytesIO):
        def write(self, data):
            written.append(bytes(data))
            raise KeyboardInterrupt  # Ctrl-C right after the bytes were written

    buffer = OutputBuffer(Interrupted())
    buffer.write("x\n")
    with pytest.raises(KeyboardInterrupt):
        buffer.flush()
    buffer.flush()
    assert written == [b"x\n"]


def test_following_ends_at_a_last_offset_or_a_limit(klog, written):
    assert numbers(shown(klog, written, "--follow", "--offsets", "8..9")) == [8, 9]
    assert numbers(shown(klog, written, "--follow", "--limit", "2")) == [0, 1]


def test_a_closed_pipe_is_no_error(klog, cluster, topic, tmp_path):
    file = tmp_path / "lines"
    file.write_bytes(b"some line\n" * 200_000)
    assert klog("produce", topic, "--file", file, "-z", "zstd").code == 0
    line = f"set -o pipefail; {KLOG} consume {topic} -b {cluster} | head -n 2"
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"some line\n" * 2, b"")


def test_an_empty_topic_has_nothing_to_show(klog, topic):
    assert shown(klog, topic) == ""


def test_a_missing_topic_or_partition_is_an_error(klog, topic):
    missing = klog("consume", "never-made")
    assert missing.code == 1
    assert missing.err == "klog: topic never-made does not exist (klog topics create never-made)\n"
    beyond = klog("consume", topic, "--partition", 3)
    assert beyond.code == 1
    assert f"topic {topic} has 1 partition, there is no 3" in beyond.err


@pytest.mark.parametrize("command", [("consume", "t"), ("produce", "t", "x"), ("topics", "list")])
def test_an_unreachable_cluster_is_reported_after_a_short_wait(klog, command):
    started_s = time.monotonic()
    outcome = klog(*command, "--bootstrap-server", "127.0.0.1:1", "--timeout-ms", "300")
    assert outcome.code == 1
    assert outcome.err == (
        "klog: 127.0.0.1:1 refuses connections; waiting up to 0.3 s for a broker to start\n"
        "klog: cannot connect to 127.0.0.1:1: Connection refused "
        "(is a broker listening there? --bootstrap-server host:port names another)\n"
    )
    assert time.monotonic() - started_s < 20  # --timeout-ms is 30 s


@pytest.mark.parametrize(
    "options",
    [
        ("-f", "table"),
        ("-f", "%x"),
        ("-f", r"%s\q"),
        ("--offsets", "b"),
        ("--since", "soon"),
        ("--grep", "("),
    ],
)
def test_invalid_combinations_of_options_are_wrong_usage(klog, topic, options):
    assert klog("consume", topic, *options).code == 2


def test_escapes_are_bytes():
    assert unescape(r"a\n\r\t\0\\\x41\xff") == b"a\n\r\t\0\\A\xff"
    assert unescape("\N{SNOWMAN}") == b"\xe2\x98\x83"
    with pytest.raises(UsageError):
        unescape(r"\z")


def test_a_template_knows_its_tokens():
    with pytest.raises(UsageError, match="%z is not a token"):
        Template("%z", LineStyle())


def test_null_is_shown_as_asked_in_every_mode():
    assert {LineStyle(mode, b"NIL").show(None) for mode in BytesMode} == {b"NIL"}
