"""`klog produce`: writes records into a topic, from arguments, files or stdin.

Options become a parser of lines and a `Producer`; `klog.client.producer` does the rest.
"""

from __future__ import annotations

import os
import random
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import typer

from klog.commands.cluster.producing import options
from klog.commands.cluster.producing.options import InputFormat
from klog.commands.cluster.producing.transactions import Commits, TransactionOptions
from klog.commands.kafka_tools.console_producer import ConsoleProducerOptions
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.delivery import Acks, Codec, DeliveryOptions
from klog.commands.shared.messages import print_error, print_report
from klog.commands.shared.records.plan import BytesMode
from klog.commands.shared.terminal import count_of
from klog.commands.shared.usage import missing
from klog.formats.errors import FormatError, KlogError, StorageError, UsageError

if TYPE_CHECKING:
    from klog.client.producer import Producer, ProducerSettings
    from klog.commands.shared.records.input_lines import Parser

"""Options that Kafka's tool also takes without a value, and what they mean then."""

_READ_BYTES: Final = 1 << 16
_STDIN: Final = "-"
_LISTED_PARTITIONS: Final = 8


def produce(
    topic: options.Topic = None,
    values: options.Values = None,
    *,
    source: options.InputOptions,
    every: options.RecordOptions,
    delivery: DeliveryOptions,
    transactions: TransactionOptions,
    console: ConsoleProducerOptions,
    connection: ConnectionOptions,
) -> None:
    """Write arguments, files, or lines of stdin as they arrive, to a topic of any Kafka.

    Examples:

        klog produce orders 'first order' 'second order'
        klog produce orders --key customer-7 --header source=shop '{"item": 1}'
        tail -n 100 app.log | klog produce logs -z zstd
        klog produce prices -K : --null NULL < prices.txt
        klog produce orders --file orders.txt --transactional-id loader
        klog dump-segment -f jsonl orders-0 | klog produce orders-again -f jsonl

        echo 'key:value' | klog produce --topic orders --property parse.key=true --property key.separator=:
    """
    from klog.admin import connect
    from klog.client.producer import Producer
    from klog.client.transactions import Transaction

    named, arguments = console.target(topic, values or ())
    if named is None:
        raise missing("TOPIC")
    properties = console.producer_properties()
    delivery = console.delivery(delivery, properties)
    settings = _with_brokers(connection, console.broker_list).settings(properties)
    parser = _parser(source, every, console)
    records = _Source(
        arguments,
        source.files or (),
        _delimiter(source.delimiter),
        source.whole,
        java_lines=source.format_ is InputFormat.LINES and console.as_kafka,
    )
    wanted = transactions.settings(properties)
    producer_settings = _producer_settings(delivery, transactional=wanted is not None)
    with connect.cluster(settings) as cluster:
        transaction = Transaction(cluster, *wanted) if wanted is not None else None
        producer = Producer(cluster, named, producer_settings, random.choice, transaction)
        producer.open()
        commits = Commits(cluster, producer, transaction, transactions)
        copying = _Copying(
            parser, producer, commits, every.partition, keep=not source.ignore_partitions, sync=console.sync
        )
        try:
            with commits.aborting():
                copying.run(records)
        except (KlogError, KeyboardInterrupt):
            if producer.delivered_count or producer.unsettled_count or producer.failures:
                _report(producer, named, commits, 0, quiet=False)
            raise
    _report(producer, named, commits, copying.skipped, quiet=delivery.quiet)
    if producer.failures:
        raise typer.Exit(1)


def _with_brokers(connection: ConnectionOptions, brokers: str | None) -> ConnectionOptions:
    """The connection to the brokers of Kafka's older `--broker-list`, unless others are named."""
    if brokers is None or connection.bootstrap_server is not None:
        return connection
    return replace(connection, bootstrap_server=brokers)


def _delimiter(text: str) -> bytes:
    from klog.commands.shared.records.template import unescape

    delimiter = unescape(text)
    if not delimiter:
        raise UsageError("--delimiter is empty", cure="--whole makes one record of each file")
    return delimiter


def _parser(
    source: options.InputOptions, every: options.RecordOptions, console: ConsoleProducerOptions
) -> Parser:
    from klog.commands.kafka_tools.line_reader import kafka_parser, line_reader
    from klog.commands.shared.arguments import parse_time
    from klog.commands.shared.records.input_lines import LineFormat, json_parser, text_parser
    from klog.commands.shared.records.template import unescape

    if every.key is not None and source.key_delimiter is not None:
        raise UsageError("--key sets the key of every record, --key-delimiter takes keys from the lines")
    if source.key_delimiter == "":
        raise UsageError("--key-delimiter is empty")
    form = LineFormat(
        None if every.key is None else os.fsencode(every.key),
        None if source.key_delimiter is None else unescape(source.key_delimiter),
        None if source.null is None else unescape(source.null),
        tuple(_header(text) for text in every.header or ()),
        parse_time("--timestamp", every.timestamp, datetime.now(UTC)),
    )
    if properties := console.checked_reader_properties():
        if source.format_ is not InputFormat.LINES or form != LineFormat():
            raise UsageError("--property and options of klog both say what a line holds")
        return kafka_parser(line_reader(properties))
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


def _producer_settings(delivery: DeliveryOptions, *, transactional: bool) -> ProducerSettings:
    from klog.client.producer import ALL_IN_SYNC, ProducerSettings

    acks = {Acks.NOBODY: 0, Acks.LEADER: 1}.get(delivery.acks, ALL_IN_SYNC)
    if delivery.idempotence and acks != ALL_IN_SYNC:
        raise UsageError(f"--idempotence is not possible with --acks {delivery.acks}", cure="--acks all")
    if transactional and (acks != ALL_IN_SYNC or delivery.idempotence is False):
        raise UsageError("transactions need --acks all and --idempotence")
    idempotent = acks == ALL_IN_SYNC if delivery.idempotence is None else delivery.idempotence
    codec = list(Codec).index(delivery.compression_type)
    return ProducerSettings(codec=codec, acks=acks, idempotent=idempotent)


class _Source:
    """The input: lists of records as they become complete, with a name of their origin for messages."""

    def __init__(
        self,
        values: Sequence[str],
        files: Sequence[str],
        delimiter: bytes,
        whole: bool,
        *,
        java_lines: bool,
    ) -> None:
        if values and files:
            raise UsageError("records are given twice", cure="VALUE... or --file, not both")
        if whole and not files:
            raise UsageError("--whole makes one record of each file", cure="name files with --file")
        self._values = values
        self._files = files or (_STDIN,)
        self._delimiter = delimiter
        self._whole = whole
        self._java_lines = java_lines

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
        from klog.commands.kafka_tools.line_reader import java_lines
        from klog.commands.shared.records.input_lines import split_lines

        for records in split_lines(_pieces(file), self._delimiter):
            lines = [line for each in records for line in java_lines(each)] if self._java_lines else records
            yield place, lines, not _readable(file)


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


class _Copying:
    """Sends all records of a source; `skipped` counts control records of a dump."""

    def __init__(
        self,
        parser: Parser,
        producer: Producer,
        commits: Commits,
        partition: int | None,
        *,
        keep: bool,
        sync: bool,
    ) -> None:
        self._parser = parser
        self._producer = producer
        self._commits = commits
        self._partition = partition
        self._keep = keep  # the partitions that lines name
        self._sync = sync
        self.skipped = 0

    def run(self, source: _Source) -> None:
        """Send everything. Raises KlogError with the place of a line that cannot be parsed."""
        number = 0
        origin = ""
        for place, lines, may_wait in source:
            number = number if place == origin else 0
            origin = place
            for line in lines:
                number += 1
                try:
                    self._send(line)
                except FormatError as error:
                    self._producer.flush()
                    raise error.at(f"{place} {number}") from error
            if may_wait:
                self._producer.flush()
                self._commits.waits()
        self._commits.commit()

    def _send(self, line: bytes) -> None:
        found = self._parser(line)
        if found is None:
            self.skipped += 1
            return
        wanted = found.partition if self._keep and self._partition is None else self._partition
        self._producer.send(found.record, wanted)
        self._commits.sent()
        if self._sync:
            self._producer.flush()


def _report(producer: Producer, topic: str, commits: Commits, skipped: int, *, quiet: bool) -> None:
    errors: dict[str, int] = {}
    for failure in producer.failures:
        errors[str(failure.error)] = errors.get(str(failure.error), 0) + failure.records
    for error, count in errors.items():
        print_error(f"{_records(count)} not delivered: {error}")
    if producer.unsettled_count:
        print_error(f"{_records(producer.unsettled_count)} with unknown outcome")
    if not quiet:
        notes = f", {_records(skipped)} that end transactions skipped" if skipped else ""
        done = f"{_records(producer.delivered_count)} delivered to {topic}{_places(producer)}"
        if commits.transactions:
            done += f", {commits.records} committed in {count_of(commits.transactions, 'transaction')}"
        print_report(f"{done}{notes}")


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
