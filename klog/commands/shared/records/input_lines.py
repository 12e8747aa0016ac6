"""Parses lines to records: delimited text with keys and values, or the JSON Lines that klog prints.

It does no I/O: bytes go in, records come out.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from klog.client.producer import Record
from klog.commands.shared.records.plan import BytesMode
from klog.formats.errors import FormatError
from klog.kernel.batch_builder import Headers

_Json: TypeAlias = Any
_INT64: Final = range(-(1 << 63), 1 << 63)


class Input(NamedTuple):
    """A record to write, and the partition that its line names, if it names one."""

    record: Record
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class LineFormat:
    """How to parse lines, and what every record gets in addition.

    `key` is the key of every record. `key_delimiter` splits a line into key and value. A key or value that
    equals `null` is null.
    """

    key: bytes | None = None
    key_delimiter: bytes | None = None
    null: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


Parser = Callable[[bytes], Input | None]


def text_parser(form: LineFormat) -> Parser:
    """Parses lines of text. The parser raises FormatError."""

    def parse(line: bytes) -> Input:
        key, value = form.key, line
        if form.key_delimiter is not None:
            key, found, value = line.partition(form.key_delimiter)
            if not found:
                raise FormatError(
                    f"no key delimiter {_shown(form.key_delimiter)} in {_shown(line)}",
                    cure="every line is KEY, delimiter, VALUE; without --key-delimiter it is a value",
                )
        return Input(
            Record(
                None if key == form.null else key,
                None if value == form.null else value,
                form.headers,
                form.timestamp_ms,
            )
        )

    return parse


def _shown(data: bytes) -> str:
    text = data[:60].decode("utf-8", "replace")
    return repr(text + ("..." if len(data) > 60 else ""))


def json_parser(form: LineFormat, mode: BytesMode) -> Parser:
    """Parses the objects that `klog dump-segment` and `klog consume` print with the same `--bytes`.

    The parser gives None for control records. `value` is required; `key`, `headers`, `timestamp` and
    `partition` are optional. The parser raises FormatError.
    """
    decode = _DECODERS[mode]

    def parse(line: bytes) -> Input | None:
        found = _object(line)
        if found.get("isControl") is True:
            return None
        if "value" not in found:
            raise FormatError('the object has no "value"', cure='null makes a tombstone: "value": null')
        key = decode("key", found["key"]) if found.get("key") is not None else form.key
        headers = [*_headers(found.get("headers", ()), decode), *form.headers]
        timestamp_ms = form.timestamp_ms
        if timestamp_ms is None:
            timestamp_ms = _integer(found, "timestamp")
            timestamp_ms = None if timestamp_ms == -1 else timestamp_ms
        record = Record(key, decode("value", found["value"]), headers, timestamp_ms)
        return Input(record, _integer(found, "partition"))

    return parse


def _object(line: bytes) -> Mapping[str, _Json]:
    try:
        found: _Json = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON: {error}", cure="one object per line") from error
    if not isinstance(found, dict):
        raise FormatError(f"not a JSON object: {_shown(line)}", cure="one object per line")
    return found


def _integer(found: Mapping[str, _Json], name: str) -> int | None:
    value = found.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value not in _INT64:
        raise FormatError(f'"{name}" is {json.dumps(value)}, not an integer')
    return value


def _headers(found: _Json, decode: Decoder) -> Headers:
    if not isinstance(found, Sequence):
        raise FormatError('"headers" is not a list')
    headers = []
    for pair in found:
        if not isinstance(pair, list) or len(pair) != 2:
            raise FormatError(f"header {json.dumps(pair)} is not a [name, value] pair")
        name = decode("header name", pair[0])
        if name is None:
            raise FormatError("a header's name is null")
        headers.append((name, decode("header value", pair[1])))
    return headers


Decoder: TypeAlias = Callable[[str, _Json], bytes | None]


def _decoder(of_text: Callable[[str], bytes]) -> Decoder:
    def decode(what: str, value: _Json) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise FormatError(
                f"{what} is {json.dumps(value)[:60]}, not a string",
                cure='write a string or {"base64": "..."}',
            )
        try:
            return of_text(value)
        except ValueError as error:
            raise FormatError(f"{what} {value[:60]!r}: {error}", cure="see --bytes") from error

    return decode


def _auto(what: str, value: _Json) -> bytes | None:
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return _DECODERS[BytesMode.BASE64](what, value["base64"])
    if isinstance(value, dict) and value.keys() == {"size"}:
        raise FormatError(f"{what} was redacted (--bytes none): it cannot be written again")
    return _DECODERS[BytesMode.UTF8](what, value)


_DECODERS: Final[dict[BytesMode, Decoder]] = {
    BytesMode.AUTO: _auto,
    BytesMode.UTF8: _decoder(str.encode),
    BytesMode.BASE64: _decoder(lambda text: b64decode(text, validate=True)),
    BytesMode.HEX: _decoder(bytes.fromhex),
}


def split_lines(pieces: Iterator[bytes], delimiter: bytes) -> Iterator[list[bytes]]:
    """The records that each piece of a stream completes, then a last record that no delimiter ends."""
    rest = bytearray()
    for piece in pieces:
        searched = max(len(rest) - len(delimiter) + 1, 0)  # do not search a record of many pieces again
        rest += piece
        if rest.find(delimiter, searched) < 0:
            yield []
            continue
        *whole, last = bytes(rest).split(delimiter)
        rest = bytearray(last)
        yield whole
    if rest:
        yield [bytes(rest)]
