"""Parses lines to records as Kafka's console producer does, by the properties of its LineMessageReader.

Rules: what `kafka-console-producer --property` of Kafka 3.9 documents and does. A line is headers, key and
value, as far as they are parsed, with their separators between them. Bytes that are not UTF-8 stay as they
are, while Kafka's tool replaces them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from klog.client.producer import Record
from klog.commands.shared.properties import is_true
from klog.commands.shared.records.input_lines import Input, Parser
from klog.formats.errors import FormatError, UsageError
from klog.kernel.batch_builder import Headers

_PACKAGES: Final = ("org.apache.kafka.tools.", "kafka.tools.")
_READERS: Final = ("LineMessageReader", "ConsoleProducer$LineMessageReader")
_IGNORE_CURE: Final = "ignore.error=true takes such lines as they are"


@dataclass(frozen=True, slots=True)
class LineReader:
    """How to parse a line. Parts that equal `null` are null."""

    parse_key: bool
    parse_headers: bool
    ignore_errors: bool
    key_separator: bytes
    headers_delimiter: bytes
    headers_separator: re.Pattern[bytes]
    headers_key_separator: bytes
    null: bytes | None


def line_reader(properties: Mapping[str, str]) -> LineReader:
    """The reader of these properties. Raises UsageError if two separators are the same."""
    marks = {
        "key.separator": properties.get("key.separator", "\t"),
        "headers.delimiter": properties.get("headers.delimiter", "\t"),
        "headers.separator": properties.get("headers.separator", ","),
        "headers.key.separator": properties.get("headers.key.separator", ":"),
        "null.marker": properties.get("null.marker"),
    }
    _check_different(marks)
    raw = {name: None if text is None else _raw(text) for name, text in marks.items()}
    try:
        headers_separator = re.compile(raw["headers.separator"] or b"")
    except re.error as error:
        raise UsageError(f"headers.separator={marks['headers.separator']} is no pattern: {error}") from error
    return LineReader(
        parse_key=is_true(properties, "parse.key"),
        parse_headers=is_true(properties, "parse.headers"),
        ignore_errors=is_true(properties, "ignore.error"),
        key_separator=raw["key.separator"] or b"",
        headers_delimiter=raw["headers.delimiter"] or b"",
        headers_separator=headers_separator,
        headers_key_separator=raw["headers.key.separator"] or b"",
        null=raw["null.marker"],
    )


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _check_different(marks: Mapping[str, str | None]) -> None:
    headers = ("headers.delimiter", "headers.separator", "headers.key.separator")
    pairs = [(first, second) for at, first in enumerate(headers) for second in headers[at + 1 :]]
    pairs += [("null.marker", name) for name in ("key.separator", *headers)]
    for first, second in pairs:
        if marks[first] == marks[second]:
            raise UsageError(f"{first} and {second} may not be equal", cure="choose another text for one")


def check_reader_class(class_name: str | None) -> None:
    """Raises UsageError for a `--line-reader` class that klog does not have."""
    known = [package + reader for package in _PACKAGES for reader in _READERS]
    if class_name is not None and class_name not in known:
        raise UsageError(
            f"line reader class {class_name} is Java, which klog does not run",
            cure=f"klog has {known[0]}; --format jsonl reads JSON Lines",
        )


def kafka_parser(reader: LineReader) -> Parser:
    """Parses lines by the reader's rules. The parser raises FormatError for a line without a separator."""

    def parse(line: bytes) -> Input:
        headers, rest = _split(
            reader, reader.parse_headers, line, reader.headers_delimiter, "headers delimiter"
        )
        key, value = _split(reader, reader.parse_key, rest, reader.key_separator, "key separator")
        return Input(
            Record(
                None if key == reader.null else key,
                None if value == reader.null else value,
                () if headers is None or headers == reader.null else _headers(reader, headers),
                None,
            )
        )

    return parse


def _split(
    reader: LineReader, wanted: bool, line: bytes, separator: bytes, name: str
) -> tuple[bytes | None, bytes]:
    """The part before the separator, None if it is not wanted or missing, and the rest."""
    if not wanted:
        return None, line
    part, found, rest = line.partition(separator) if separator else (b"", b"1", line)
    if found:
        return part, rest
    if reader.ignore_errors:
        return None, line
    raise FormatError(f"no {name} {_shown(separator)} in {_shown(line)}", cure=_IGNORE_CURE)


def _shown(data: bytes) -> str:
    return repr(data[:60].decode("utf-8", "replace") + ("..." if len(data) > 60 else ""))


def _headers(reader: LineReader, text: bytes) -> Headers:
    pairs = reader.headers_separator.split(text)
    while len(pairs) > 1 and not pairs[-1]:  # Java's split leaves out empty parts at the end
        pairs.pop()
    return [_header(reader, pair) for pair in pairs]


def _header(reader: LineReader, pair: bytes) -> tuple[bytes, bytes | None]:
    name, found, value = pair.partition(reader.headers_key_separator)
    if not found:
        if reader.ignore_errors:
            return pair, None
        raise FormatError(
            f"no header key separator {_shown(reader.headers_key_separator)} in {_shown(pair)}",
            cure=_IGNORE_CURE,
        )
    if name == reader.null:
        raise FormatError(f"a header's name is the null marker {_shown(name)}, and names cannot be null")
    return name, None if value == reader.null else value


def java_lines(line: bytes) -> list[bytes]:
    r"""The lines that Java reads of a text before `\n`: it also ends lines at `\r` and `\r\n`."""
    return line.removesuffix(b"\r").split(b"\r")
