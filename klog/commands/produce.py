"""`klog produce`: writes records into a topic, from arguments, files or stdin.

Options become a parser of lines and a `Producer`; `klog.client.producer` does the rest.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import typer

from klog.commands._messages import print_error, print_report
from klog.commands._terminal import count_of
from klog.commands.dump.plan import BytesMode
from klog.commands.option_groups import expand_options
from klog.commands.wire import produce_options as options
from klog.commands.wire.connection import ConnectionOptions
from klog.commands.wire.produce_options import Acks, Codec, InputFormat
from klog.formats.errors import KlogError, StorageError, UsageError

if TYPE_CHECKING:
    from klog.client.producer import Producer, ProducerSettings
    from klog.commands.wire.input_lines import Parser

_READ_BYTES: Final = 1 << 16
_STDIN: Final = "-"
_LISTED_PARTITIONS: Final = 8


@expand_options
def produce(
    topic: options.Topic,
    values: options.Values = None,
    *,
    source: options.InputOptions,
    every: options.RecordOptions,
    delivery: options.DeliveryOptions,
    connection: ConnectionOptions,
) -> None:
    """Write arguments, files, or lines of stdin as they arrive, to a topic of any Kafka.

    Examples:

        klog produce orders 'first order' 'second order'

        klog produce orders --key customer-7 --header source=shop '{"item": 1}'

        tail -n 100 app.log | klog produce logs -z zstd

        klog produce prices -K : --null NULL < prices.txt

        klog dump-segment -f jsonl orders-0 | klog produce orders-again -f jsonl
    """
    from klog.admin import connect

    settings = connection.settings()
    parser = _parser(source, every)
    records = _Source(values or (), source.files or (), _delimiter(source.delimiter), source.whole)
    with connect.cluster(settings) as cluster:
        producer = connect.producer(cluster, topic, _producer_settings(delivery))
        producer.open()
        try:
            skipped = _copy(records, parser, producer, every.partition, keep=not source.ignore_partitions)
        except (KlogError, KeyboardInterrupt):
            _report(producer, topic, 0, quiet=False)
            raise
    _report(producer, topic, skipped, quiet=delivery.quiet)
    if producer.failures:
        raise typer.Exit(1)


def _delimiter(text: str) -> bytes:
    from klog.commands.wire.template import unescape

    delimiter = unescape(text)
    if not delimiter:
        raise UsageError("--delimiter is empty", cure="--whole makes one record of each file")
    return delimiter


def _parser(source: options.InputOptions, every: options.RecordOptions) -> Parser:
    from klog.commands.dump.arguments import parse_time
    from klog.commands.wire.input_lines import LineFormat, json_parser, text_parser
    from klog.commands.wire.template import unescape

    if every.key is not None and source.key_delimiter is not None:
        raise UsageError("--key sets the key of every record, --key-delimiter takes keys from the lines")
    if source.key_delimiter == "":
        raise UsageError("--key-delimiter is empty")
    form = LineFormat(
        None if every.key is None else os.fsencode(every.key),
        None if source.key_delimiter is None else unescape(source.key_delimiter),
        None if source.null is None else unescape(source.null),
        [_header(text) for text in every.header or ()],
        parse_time("--timestamp", every.timestamp, datetime.now(UTC)),
    )
    if source.format_ is InputFormat.LINES:
        return text_parser(form)
    if source.key_delimiter is not None or source.null is not None:
        raise UsageError("--key-delimiter and --null are for lines: jsonl has keys and nulls of its own")
    if source.bytes_ is BytesMode.NONE:
        raise UsageError("a dump with --bytes none has no keys and values to write")
    return json_parser(form, source.bytes_)


def _header(text: str) -> tuple[bytes, bytes | None]:
    name, given, value = text.partition("=")
    return os.fsencode(name), os.fsencode(value) if given else None


def _producer_settings(delivery: options.DeliveryOptions) -> ProducerSettings:
    from klog.client.producer import ALL_IN_SYNC, ProducerSettings

    acks = {Acks.NOBODY: 0, Acks.LEADER: 1}.get(delivery.acks, ALL_IN_SYNC)
    if delivery.idempotence and acks != ALL_IN_SYNC:
        raise UsageError(f"--idempotence is not possible with --acks {delivery.acks}", cure="--acks all")
    idempotent = acks == ALL_IN_SYNC if delivery.idempotence is None else delivery.idempotence
    codec = list(Codec).index(delivery.compression_type)
    return ProducerSettings(codec=codec, acks=acks, idempotent=idempotent)


class _Source:
    """The input: lists of records as they become complete, with a name of their origin for messages."""

    def __init__(self, values: Sequence[str], files: Sequence[str], delimiter: bytes, whole: bool) -> None:
        if values and files:
            raise UsageError("records are given twice", cure="VALUE... or --file, not both")
        if whole and not files:
            raise UsageError("--whole makes one record of each file", cure="name files with --file")
        self._values = values
        self._files = files or (_STDIN,)
        self._delimiter = delimiter
        self._whole = whole

    def __iter__(self) -> Iterator[tuple[str, list[bytes], bool]]:
        """(origin, records, whether the next read may wait) for each piece of input. Raises StorageError."""
        if self._values:
            yield "argument", [os.fsencode(value) for value in self._values], False
            return
        for name in self._files:
            with ExitStack() as opened:
                file = sys.stdin.buffer if name == _STDIN else opened.enter_context(_open(name))
                place = "stdin line" if name == _STDIN else f"{name} line"
                if self._whole:
                    yield place, [file.read()], False
                else:
                    yield from self._lines(file, place)

    def _lines(self, file: BinaryIO, place: str) -> Iterator[tuple[str, list[bytes], bool]]:
        from klog.commands.wire.input_lines import split_lines

        for records in split_lines(_pieces(file), self._delimiter):
            yield place, records, not _readable(file)


def _open(name: str) -> BinaryIO:
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise StorageError(f"cannot be opened: {error.strerror}", file=name) from error


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read1(_READ_BYTES):  # type: ignore[attr-defined]  # every binary stream here has it
        yield piece


def _readable(file: BinaryIO) -> bool:
    """Whether the next read will not wait; true for streams that select() does not know."""
    try:
        return bool(select.select([file], [], [], 0)[0])
    except (OSError, ValueError):
        return True


def _copy(source: _Source, parser: Parser, producer: Producer, partition: int | None, *, keep: bool) -> int:
    """Send everything; returns how many control records of a dump were skipped."""
    skipped = 0
    number = 0
    origin = ""
    for place, lines, may_wait in source:
        number = number if place == origin else 0
        origin = place
        for line in lines:
            number += 1
            try:
                found = parser(line)
            except KlogError as error:
                producer.flush()
                raise error.at(f"{place} {number}") from error
            if found is None:
                skipped += 1
                continue
            wanted = found.partition if keep and partition is None else partition
            producer.send(found.record, wanted)
        if may_wait:
            producer.flush()
    producer.flush()
    return skipped


def _report(producer: Producer, topic: str, skipped: int, *, quiet: bool) -> None:
    errors: dict[str, int] = {}
    for failure in producer.failures:
        errors[str(failure.error)] = errors.get(str(failure.error), 0) + failure.records
    for error, count in errors.items():
        print_error(f"{_records(count)} not delivered: {error}")
    if producer.unsettled_count:
        print_error(f"{_records(producer.unsettled_count)} with unknown outcome")
    if not quiet:
        notes = f", {_records(skipped)} that end transactions skipped" if skipped else ""
        print_report(f"{_records(producer.delivered_count)} delivered to {topic}{_places(producer)}{notes}")


def _records(count: int) -> str:
    return count_of(count, "record")


def _places(producer: Producer) -> str:
    partitions = sorted(producer.delivered.items())
    if not partitions or len(partitions) > _LISTED_PARTITIONS:
        return f" ({len(partitions)} partitions)" if partitions else ""
    places = []
    for number, delivered in partitions:
        first, last = delivered.first_offset, delivered.last_offset
        offsets = "" if first < 0 else f" offset {first}" if first == last else f" offsets {first} to {last}"
        places.append(f"partition {number}{offsets}")
    return f" ({', '.join(places)})"
