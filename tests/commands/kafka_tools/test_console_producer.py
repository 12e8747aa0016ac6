"""`klog produce` takes the command lines of kafka-console-producer."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from klog.client.producer import Record
from klog.commands.kafka_tools.line_reader import java_lines, kafka_parser, line_reader
from klog.commands.shared.option_sets import with_values
from klog.formats.errors import FormatError, UsageError
from tests.commands.running import Run


@pytest.fixture
def typed(klog: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Runs `klog produce` with a text on stdin."""

    def run(text: bytes, *arguments: object):
        file = tmp_path / "stdin"
        file.write_bytes(text)
        with file.open("rb") as opened:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(opened))
            return klog("produce", *arguments)

    return run


def records(klog: Run, topic: str) -> list[tuple[str | None, str | None, list[list[str | None]]]]:
    lines = klog("consume", topic, "-f", "jsonl").out.splitlines()
    return [(each["key"], each["value"], each["headers"]) for each in map(json.loads, lines)]


def test_lines_are_values_and_nothing_is_said(klog: Run, topic: str, typed) -> None:
    done = typed(b"one\ntwo\r\nthree\rfour", "--topic", topic)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert [value for _, value, _ in records(klog, topic)] == ["one", "two", "three", "four"]


def test_keys_headers_and_nulls_are_parsed_by_properties(klog: Run, topic: str, typed, tmp_path) -> None:
    config = tmp_path / "reader.properties"
    config.write_text("parse.key=true\nkey.separator=!\n")
    done = typed(
        b"h1=a;h2=N|k1:v1\nN|N:v2\nh3=|k3:N\n",
        *("--topic", topic, "--reader-config", config, "--property", "key.separator=:"),
        *("--property", "parse.headers=true", "--property", "headers.delimiter=|"),
        *("--reader-property", "headers.separator=;", "--property", "headers.key.separator=="),
        *("--property", "null.marker=N"),
    )
    assert (done.code, done.err) == (0, "")
    assert records(klog, topic) == [
        ("k1", "v1", [["h1", "a"], ["h2", None]]),
        (None, "v2", []),
        ("k3", None, [["h3", ""]]),
    ]


def test_a_line_without_a_separator_ends_the_run_and_those_before_are_delivered(
    klog: Run, topic: str, typed
) -> None:
    done = typed(b"a\tb\nc\n", "--topic", topic, "--property", "parse.key=true")
    assert done.code == 1
    assert "stdin line 2: no key separator" in done.err
    assert records(klog, topic) == [("a", "b", [])]
    assert (
        typed(
            b"c\n", "--topic", topic, "--property", "parse.key=true", "--property", "ignore.error=true"
        ).code
        == 0
    )
    assert records(klog, topic)[1:] == [(None, "c", [])]


@pytest.mark.parametrize(
    ("words", "codec"),
    [
        (("--compression-codec",), "gzip"),
        (("--compression-codec", "--sync"), "gzip"),
        (("--compression-codec", "lz4"), "lz4"),
        (("--producer-property", "compression.type=zstd"), "zstd"),
        (("--compression-codec", "lz4", "-z", "snappy"), "snappy"),
        ((), "none"),
    ],
)
def test_the_codec_is_that_of_kafkas_options(klog: Run, topic: str, typed, words, codec) -> None:
    assert typed(b"v\n" * 20, "--topic", topic, *words).code == 0
    lines = klog("consume", topic, "-f", "jsonl").out.splitlines()
    assert {json.loads(line)["codec"] for line in lines} == {codec}


def test_options_about_kafkas_own_buffers_are_accepted(klog: Run, cluster: str, topic: str, typed) -> None:
    numbers = ("--batch-size", "--timeout", "--max-memory-bytes", "--max-partition-memory-bytes",
               "--message-send-max-retries", "--metadata-expiry-ms", "--retry-backoff-ms",
               "--socket-buffer-size", "--max-block-ms", "--request-timeout-ms")  # fmt: skip
    words = [each for name in numbers for each in (name, 100)]
    reader = ("--line-reader", "kafka.tools.ConsoleProducer$LineMessageReader")
    acks = ("--request-required-acks", 1, "--broker-list", cluster)
    assert typed(b"v\n", "--topic", topic, *words, *reader, *acks).code == 0
    assert records(klog, topic) == [(None, "v", [])]


def test_kcats_topic_takes_kcats_options(klog: Run, topic: str, typed) -> None:
    assert typed(b"k:v\n", "-P", "-t", topic, "-K", ":", "-z", "gzip").code == 0
    assert records(klog, topic) == [("k", "v", [])]


def test_with_a_topic_option_all_arguments_are_records(klog: Run, topic: str) -> None:
    assert klog("produce", "--topic", topic, "a", "b").code == 0
    assert [value for _, value, _ in records(klog, topic)] == ["a", "b"]


@pytest.mark.parametrize(
    "words",
    [
        ("--topic", "a", "-t", "b"),
        ("--topic", "a", "--property", "parse.key=true", "-K", ":"),
        ("--topic", "a", "--property", "parse.key=true", "-f", "jsonl"),
        ("--topic", "a", "--line-reader", "com.example.Mine"),
        ("--topic", "a", "--producer-property", "transactional.id=x", "--acks", "1"),
        ("--topic", "a", "--producer-property", "acks=2"),
        ("--topic", "a", "--compression-codec", "rar"),
        (),
    ],
)
def test_lines_that_cannot_be_followed_are_usage_errors(klog: Run, words: tuple[str, ...]) -> None:
    refused = klog("produce", *words)
    assert (refused.code, refused.out) == (2, "")


@pytest.mark.parametrize(
    "properties",
    [
        {"headers.delimiter": ","},
        {"headers.delimiter": ":"},
        {"headers.separator": ":"},
        {"null.marker": "\t"},
        {"null.marker": ","},
        {"null.marker": ":"},
    ],
)
def test_separators_must_differ(properties: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="may not be equal"):
        line_reader(properties)


def test_headers_are_split_by_a_pattern_and_empty_ones_at_the_end_are_left_out() -> None:
    parse = kafka_parser(line_reader({"parse.headers": "true", "headers.separator": "[,;]"}))
    found = parse(b"a:1;b:2,,\tv")
    assert found is None or found.record == Record(None, b"v", [(b"a", b"1"), (b"b", b"2")], None)
    with pytest.raises(FormatError, match="no header key separator"):
        parse(b"a\tv")


def test_a_header_without_a_value_is_null_where_errors_are_ignored() -> None:
    properties = {"parse.headers": "true", "ignore.error": "true", "null.marker": "N"}
    parse = kafka_parser(line_reader(properties))
    found = parse(b"a\tv")
    assert found is not None
    assert found.record == Record(None, b"v", [(b"a", None)], None)
    with pytest.raises(FormatError, match="null marker"):
        parse(b"N:1\tv")


@pytest.mark.parametrize(
    ("text", "lines"),
    [(b"a", [b"a"]), (b"a\r", [b"a"]), (b"a\rb", [b"a", b"b"]), (b"", [b""]), (b"a\r\r", [b"a", b""])],
)
def test_java_ends_lines_at_a_carriage_return(text: bytes, lines: list[bytes]) -> None:
    assert java_lines(text) == lines


@pytest.mark.parametrize(
    ("arguments", "understood"),
    [
        (["--codec"], ["--codec", "gzip"]),
        (["--codec", "lz4", "x"], ["--codec", "lz4", "x"]),
        (["--codec", "-q"], ["--codec", "gzip", "-q"]),
        (["x"], ["x"]),
        ([], []),
    ],
)
def test_an_option_has_its_default_where_no_value_follows(
    arguments: list[str], understood: list[str]
) -> None:
    assert list(with_values(arguments, {"--codec": "gzip"})) == understood
