"""`klog consume` takes the command lines of kafka-console-consumer and of kcat."""

from __future__ import annotations

import struct

import pytest

from klog.commands.kafka_tools.console_consumer import ConsoleOptions
from klog.commands.kafka_tools.deserialisers import deserialiser
from klog.commands.kafka_tools.formatter import formatter_config
from klog.formats.errors import FormatError, UsageError
from tests import corpora
from tests.commands.running import Run

IDLE = ("--timeout-ms", 400)
SERDES = "org.apache.kafka.common.serialization."


@pytest.fixture
def filled(klog: Run, topic: str) -> str:
    """A topic with five records at times 1,000 to 5,000, with a null key, a null value and headers."""
    for number, (key, value, headers) in enumerate(
        [
            ("k0", "v0", ()),
            (None, "v1", ("--header", "a=1", "--header", "b=2")),
            ("k2", None, ()),
            ("k3", "v3", ("--header", "none")),
            ("k4", "v4", ()),
        ]
    ):
        keyed = () if key is None else ("--key", key)
        written = klog(
            "produce",
            topic,
            value or "NULL",
            *keyed,
            *headers,
            "--null",
            "NULL",
            "--timestamp",
            1000 * (number + 1),
        )
        assert written.code == 0, written.err
    return topic


def test_from_the_beginning_it_reads_until_no_record_comes(klog: Run, filled: str) -> None:
    found = klog("consume", "--topic", filled, "--from-beginning", *IDLE)
    assert (found.code, found.out) == (0, "v0\nv1\nnull\nv3\nv4\n")
    assert found.err == "Processed a total of 5 messages\n"


def test_it_ends_after_so_many_messages(klog: Run, filled: str) -> None:
    found = klog("consume", "--topic", filled, "--from-beginning", "--max-messages", 2)
    assert (found.code, found.out) == (0, "v0\nv1\n")
    assert found.err == "Processed a total of 2 messages\n"


def test_without_a_start_it_reads_from_the_end(klog: Run, filled: str) -> None:
    found = klog("consume", "--topic", filled, *IDLE)
    assert (found.code, found.out) == (0, "")
    of_partition = klog("consume", "--topic", filled, "--partition", 0, *IDLE)
    assert (of_partition.code, of_partition.out) == (0, "")


def test_everything_of_a_record_is_printed_in_kafkas_order(klog: Run, filled: str) -> None:
    shown = ("timestamp", "partition", "offset", "headers", "key")
    properties = [each for name in shown for each in ("--property", f"print.{name}=true")]
    found = klog("consume", "--topic", filled, "--from-beginning", "--max-messages", 4, *properties)
    assert found.out.splitlines() == [
        "CreateTime:1000\tPartition:0\tOffset:0\tNO_HEADERS\tk0\tv0",
        "CreateTime:2000\tPartition:0\tOffset:1\ta:1,b:2\tnull\tv1",
        "CreateTime:3000\tPartition:0\tOffset:2\tNO_HEADERS\tk2\tnull",
        "CreateTime:4000\tPartition:0\tOffset:3\tnone:null\tk3\tv3",
    ]


def test_separators_and_the_null_literal_are_taken_as_they_are(klog: Run, filled: str, tmp_path) -> None:
    config = tmp_path / "formatter.properties"
    config.write_text("print.key=true\nkey.separator=ignored\nnull.literal=<none>\n")
    found = klog(
        *("consume", "--topic", filled, "--from-beginning", "--max-messages", 3),
        *("--formatter-config", config, "--formatter-property", r"key.separator=\t"),
        *("--property", "line.separator=;", "--property", "print.headers=TRUE"),
        *("--property", "headers.separator=|"),
    )
    assert found.out == r"NO_HEADERS\tk0\tv0;a:1|b:2\t<none>\tv1;NO_HEADERS\tk2\t<none>;"


def test_values_need_not_be_printed(klog: Run, filled: str) -> None:
    start = ("consume", "--topic", filled, "--from-beginning", "--max-messages", 2)
    assert klog(*start, "--property", "print.value=false", "--property", "print.key=true").out == "k0\nnull\n"
    assert klog(*start, "--property", "print.value=false").out == ""
    assert klog(*start, "--formatter", "kafka.tools.NoOpMessageFormatter").out == ""


def test_a_partition_is_read_from_an_offset(klog: Run, filled: str) -> None:
    start = ("consume", "--topic", filled, "--partition", 0, *IDLE)
    assert klog(*start, "--offset", 3).out == "v3\nv4\n"
    assert klog(*start, "--offset", "earliest").out.count("\n") == 5
    assert klog(*start, "--offset", "latest").out == ""


def test_topics_are_included_by_a_regular_expression(klog: Run, filled: str) -> None:
    found = klog("consume", "--include", f"{filled[:-1]}[{filled[-1]}]", "--from-beginning", *IDLE)
    assert found.out.count("\n") == 5
    none = klog("consume", "--include", "no-such.*", "--from-beginning", *IDLE)
    assert none.code == 1
    assert "no topic matches" in none.err
    assert klog("consume", "--include", "(", "--from-beginning", *IDLE).code == 2


def test_properties_of_the_consumer_say_where_to_start(klog: Run, filled: str, tmp_path) -> None:
    start = ("consume", "--topic", filled, *IDLE)
    assert klog(*start, "--consumer-property", "auto.offset.reset=earliest").out.count("\n") == 5
    config = tmp_path / "consumer.properties"
    config.write_text("auto.offset.reset=earliest\nisolation.level=read_committed\n")
    assert klog(*start, "--consumer.config", config).out.count("\n") == 5
    both = klog(*start, "--from-beginning", "--consumer-property", "auto.offset.reset=latest")
    assert both.code == 2
    assert klog(*start, "--consumer-property", "isolation.level=none").code == 2


def test_a_group_is_joined_as_by_kafkas_consumer(klog: Run, filled: str) -> None:
    start = ("consume", "--topic", filled, *IDLE)
    group = ("--consumer-property", f"group.id=of-{filled}")
    assert klog(*start, *group, "--from-beginning").out.count("\n") == 5
    assert klog(*start, "--group", f"of-{filled}", "--from-beginning").out == ""
    assert klog(*start, "--group", f"from-the-end-of-{filled}").out == ""
    different = klog(*start, *group, "--group", "other")
    assert (different.code, different.out) == (2, "")


def test_a_record_that_a_deserializer_rejects_stops_unless_it_is_skipped(klog: Run, filled: str) -> None:
    start = ("consume", "--topic", filled, "--from-beginning", "--max-messages", 3)
    number = ("--value-deserializer", SERDES + "LongDeserializer")
    stopped = klog(*start, *number)
    assert (stopped.code, stopped.out) == (1, "")
    assert f"{filled}-0: offset 0: 2 bytes are not the 8" in stopped.err
    skipped = klog(*start, *number, "--skip-message-on-error")
    assert (skipped.code, skipped.out) == (1, "null\n")


@pytest.mark.parametrize(
    "words",
    [
        ("a", "--topic", "b"),
        ("--topic", "a", "-t", "b"),
        ("--topic", "a", "--include", "b"),
        ("--topic", "a", "--from-beginning", "--offset", "3"),
        ("--topic", "a", "--property", "print.key=true", "-f", "%s"),
        ("--topic", "a", "--property", "=x"),
        ("--topic", "a", "--formatter", "com.example.Mine"),
        ("--topic", "a", "--property", "key.deserializer=com.example.Mine"),
        ("-t", "a", "-o", "stored"),
        ("-t", "a", "-o", "middle"),
        ("-t", "a", "-o", "s@tomorrow"),
    ],
)
def test_lines_that_contradict_themselves_are_usage_errors(klog: Run, words: tuple[str, ...]) -> None:
    refused = klog("consume", *words, *IDLE)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("klog: ")


def test_kcat_reads_from_the_beginning_to_the_end(klog: Run, filled: str) -> None:
    assert klog("consume", "-C", "-t", filled, "-e", "-q", "-u").out == "v0\nv1\n\nv3\nv4\n"
    assert klog("consume", "-t", filled, "-o", "beginning", "-c", 1).out == "v0\n"
    assert klog("consume", "-t", filled, "-o", "-2", "-e").out == "v3\nv4\n"
    assert klog("consume", "-t", filled, "-o", "end", "-e").out == ""
    assert klog("consume", "-t", filled, "-o", 4, "-e", "-f", r"%o %s\n").out == "4 v4\n"


def test_kcat_starts_and_stops_at_times(klog: Run, filled: str) -> None:
    start = ("consume", "-t", filled, "-e", "-f", "%o")
    assert klog(*start, "-o", "s@2500").out == "2\n3\n4\n"
    assert klog(*start, "-o", "s@2500", "-o", "e@4000").out == "2\n"
    assert klog(*start, "-o", "s@1970-01-01T00:00:05Z").out == "4\n"
    assert klog(*start, "-o", "s@9999").out == ""
    assert klog(*start, "-o", "e@9999").out.count("\n") == 5


def test_json_is_another_name_of_jsonl(klog: Run, filled: str, tmp_path) -> None:
    lines = klog("consume", filled, "-f", "json")
    assert lines == klog("consume", filled, "-f", "jsonl")
    file = tmp_path / "records"
    file.write_text(lines.out)
    assert klog("produce", filled, "-f", "json", "--file", file).code == 0
    assert klog("consume", filled).out == 2 * "v0\nv1\n\nv3\nv4\n"
    segment = corpora.Corpus("k39-codecs").log_dir().path / "t-none-0/00000000000000000000.log"
    assert klog("dump-segment", "-f", "json", segment) == klog("dump-segment", "-f", "jsonl", segment)


def test_formatter_properties_work_with_topics_as_arguments(klog: Run, filled: str) -> None:
    found = klog("consume", filled, "--limit", 1, "--property", "print.offset=true")
    assert (found.out, found.err) == ("Offset:0\tv0\n", "")


@pytest.mark.parametrize(
    ("name", "data", "shown"),
    [
        ("StringDeserializer", b"a\xff", "a\ufffd".encode()),
        ("IntegerDeserializer", struct.pack(">i", -7), b"-7"),
        ("LongDeserializer", struct.pack(">q", 1 << 40), b"1099511627776"),
        ("ShortDeserializer", struct.pack(">h", 5), b"5"),
        ("DoubleDeserializer", struct.pack(">d", 1e10), b"1.0E10"),
        ("FloatDeserializer", struct.pack(">f", 0.1), b"0.1"),
        ("FloatDeserializer", struct.pack(">f", 3.4e38), b"3.4E38"),
        ("BooleanDeserializer", b"\1", b"true"),
        (
            "UUIDDeserializer",
            b"6F9619FF-8B86-D011-B42D-00C04FC964FF",
            b"6f9619ff-8b86-d011-b42d-00c04fc964ff",
        ),
        ("BytesDeserializer", b"a\x00\xff", rb"a\x00\xFF"),
    ],
)
def test_deserializers_show_what_java_shows(name: str, data: bytes, shown: bytes) -> None:
    found = deserialiser(SERDES + name)
    assert found is not None
    assert found(data) == shown


@pytest.mark.parametrize("name", ["Integer", "Long", "Short", "Double", "Float", "Boolean", "UUID"])
def test_a_deserializer_rejects_bytes_of_another_size(name: str) -> None:
    found = deserialiser(f"{SERDES}{name}Deserializer")
    assert found is not None
    with pytest.raises(FormatError):
        found(b"123")


def test_a_byte_array_is_printed_as_it_is() -> None:
    assert deserialiser(SERDES + "ByteArrayDeserializer") is None
    assert formatter_config({}).only_values
    with pytest.raises(UsageError, match="Java"):
        deserialiser("com.example.Mine")


def test_consumer_properties_of_the_command_line_win_over_the_file(tmp_path) -> None:
    config = tmp_path / "c.properties"
    config.write_text("client.id=file\nfetch.min.bytes=7\n")
    options = ConsoleOptions(consumer_config=config, consumer_property=["client.id=line"])
    assert options.consumer_properties() == {"client.id": "line", "fetch.min.bytes": "7"}
