"""Prints records as Kafka's console consumer does, by the properties of its DefaultMessageFormatter.

Rules: what `kafka-console-consumer --property` of Kafka 3.9 documents and prints. Separators are taken as
they are given; `\\t` is two characters there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from klog.admin.consuming import Run
from klog.commands.kafka_tools.deserialisers import Deserialiser, deserialiser
from klog.commands.shared.properties import is_true
from klog.commands.shared.records.output_buffer import OutputBuffer
from klog.commands.shared.records.template import Row
from klog.formats.constants import TIMESTAMP_TYPE_BIT
from klog.formats.errors import FormatError, KlogError, UsageError
from klog.kernel import kernel

_PACKAGES: Final = ("org.apache.kafka.tools.consumer.", "kafka.tools.")
_DEFAULT: Final = "DefaultMessageFormatter"
_NO_OUTPUT: Final = "NoOpMessageFormatter"


@dataclass(frozen=True, slots=True)
class FormatterConfig:
    """What to print of each record, in this order: timestamp, partition, offset, headers, key, value."""

    timestamp: bool
    partition: bool
    offset: bool
    headers: bool
    key: bool
    value: bool
    separator: bytes
    line_separator: bytes
    headers_separator: bytes
    null: bytes
    key_deserialiser: Deserialiser | None
    value_deserialiser: Deserialiser | None
    headers_deserialiser: Deserialiser | None

    @property
    def only_values(self) -> bool:
        """Whether the output is values as they are, with the line separator after each."""
        others = (self.timestamp, self.partition, self.offset, self.headers, self.key)
        return self.value and not any(others) and self.value_deserialiser is None


def formatter_config(properties: Mapping[str, str]) -> FormatterConfig:
    """The config of these properties. Raises UsageError for a deserializer class that klog does not have."""

    def text(name: str, default: str) -> bytes:
        return properties.get(name, default).encode("utf-8", "surrogateescape")

    def deserialised(name: str) -> Deserialiser | None:
        return deserialiser(properties[name]) if name in properties else None

    return FormatterConfig(
        timestamp=is_true(properties, "print.timestamp"),
        partition=is_true(properties, "print.partition"),
        offset=is_true(properties, "print.offset"),
        headers=is_true(properties, "print.headers"),
        key=is_true(properties, "print.key"),
        value=is_true(properties, "print.value", default=True),
        separator=text("key.separator", "\t"),
        line_separator=text("line.separator", "\n"),
        headers_separator=text("headers.separator", ","),
        null=text("null.literal", "null"),
        key_deserialiser=deserialised("key.deserializer"),
        value_deserialiser=deserialised("value.deserializer"),
        headers_deserialiser=deserialised("headers.deserializer"),
    )


def prints_records(class_name: str | None) -> bool:
    """Whether a `--formatter` class prints records. Raises UsageError for a class that klog does not have."""
    if class_name is None:
        return True
    short = next((class_name.removeprefix(each) for each in _PACKAGES if class_name.startswith(each)), "")
    if short not in (_DEFAULT, _NO_OUTPUT):
        raise UsageError(
            f"formatter class {class_name} is Java, which klog does not run",
            cure=f"klog has {_PACKAGES[0]}{{{_DEFAULT},{_NO_OUTPUT}}}; `klog dump-segment` has decoders for"
            " internal topics",
        )
    return short == _DEFAULT


class KafkaLines:
    """Prints records as DefaultMessageFormatter does.

    A record that a deserialiser rejects is skipped after `on_error`, which may raise.
    """

    def __init__(
        self, buffer: OutputBuffer, config: FormatterConfig, on_error: Callable[[KlogError], None]
    ) -> None:
        self._buffer = buffer
        self._config = config
        self._on_error = on_error

    def write(self, run: Run, count: int) -> None:
        """Write the first `count` records of a run."""
        view = memoryview(run.payload)
        lines = []
        for number in range(count):
            row = Row(run, view, number)
            try:
                lines.append(self._line(row))
            except FormatError as error:
                self._buffer.write_bytes(b"".join(lines))
                lines.clear()
                self._on_error(FormatError(f"offset {run.records.offset[number]}: {error}", file=_name(run)))
        self._buffer.write_bytes(b"".join(lines))

    def _line(self, row: Row) -> bytes:
        config, run, number = self._config, row.run, row.row
        parts = []
        if config.timestamp:
            parts.append(_timestamp(run, number))
        if config.partition:
            parts.append(b"Partition:%d" % run.partition.partition)
        if config.offset:
            parts.append(b"Offset:%d" % run.records.offset[number])
        if config.headers:
            parts.append(self._headers(row))
        if config.key:
            parts.append(self._shown(row.key(), config.key_deserialiser))
        if config.value:
            parts.append(self._shown(row.value(), config.value_deserialiser))
        return config.separator.join(parts) + (config.line_separator if parts else b"")

    def _shown(self, data: memoryview | bytes | None, deserialise: Deserialiser | None) -> bytes:
        if data is None:
            return self._config.null
        return bytes(data) if deserialise is None else deserialise(bytes(data))

    def _headers(self, row: Row) -> bytes:
        records, config = row.run.records, self._config
        count = records.header_count[row.row]
        headers = kernel.headers(row.view, records.headers_start[row.row], count) if count > 0 else ()
        return (
            config.headers_separator.join(
                name + b":" + self._shown(content, config.headers_deserialiser) for name, content in headers
            )
            or b"NO_HEADERS"
        )


def _name(run: Run) -> str:
    return f"{run.partition.topic}-{run.partition.partition}"


def _timestamp(run: Run, number: int) -> bytes:
    batch = run.records.batch[number]
    if run.batches.magic[batch] == 0:
        return b"NO_TIMESTAMP"
    appended = run.batches.attributes[batch] & TIMESTAMP_TYPE_BIT
    return b"%s:%d" % (b"LogAppendTime" if appended else b"CreateTime", run.records.timestamp[number])


class NoLines:
    """Prints nothing, as NoOpMessageFormatter."""

    def write(self, run: Run, count: int) -> None:
        """Do nothing."""
