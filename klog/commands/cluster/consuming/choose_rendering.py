"""Chooses how `klog consume` prints records: in klog's formats, or as Kafka's console consumer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, Final

from klog.commands.cluster.consuming.options import PrintOptions
from klog.commands.cluster.consuming.rendering import FormattedLines, JsonLines, ValueLines
from klog.commands.kafka_tools.console_consumer import ConsoleOptions
from klog.commands.kafka_tools.formatter import KafkaLines, NoLines, formatter_config, prints_records
from klog.commands.shared.records.output_buffer import OutputBuffer
from klog.commands.shared.records.plan import BytesMode
from klog.commands.shared.records.template import LineStyle, Template, unescape
from klog.formats.errors import KlogError, UsageError

if TYPE_CHECKING:
    from klog.commands.shared.decoding.failures import Failures
    from klog.commands.shared.decoding.fields import RecordDecoder
    from klog.commands.shared.decoding.runs import Rendering

JSON_FORMATS: Final = ("jsonl", "json")


def decoded_rendering(
    out: BinaryIO,
    printing: PrintOptions,
    console: ConsoleOptions,
    on_problem: Callable[[KlogError], None],
    decoder: RecordDecoder | None,
    failures: Failures,
) -> tuple[Rendering, OutputBuffer]:
    """The rendering that the options ask for, of decoded records if there is a decoder. Raises UsageError."""
    if decoder is None:
        buffer = OutputBuffer(out)
        return choose_rendering(buffer, printing, console, on_problem), buffer
    from klog.commands.shared.decoding.json_lines import DecodingLines
    from klog.commands.shared.decoding.runs import DecodedRuns

    if printing.format_ in JSON_FORMATS:
        if printing.bytes_ is not BytesMode.AUTO:
            raise UsageError("--bytes says how bytes are shown, which are decoded here")
        lines = DecodingLines(out, decoder, failures)
        buffer = OutputBuffer(lines)  # type: ignore[arg-type]  # a stream to write to
        return JsonLines(buffer, BytesMode.BASE64), buffer
    buffer = OutputBuffer(out)
    return DecodedRuns(choose_rendering(buffer, printing, console, on_problem), decoder, failures), buffer


def choose_rendering(
    buffer: OutputBuffer,
    printing: PrintOptions,
    console: ConsoleOptions,
    on_problem: Callable[[KlogError], None],
) -> Rendering:
    """The rendering that the options ask for. Raises UsageError."""
    form = printing.format_
    prints = prints_records(console.formatter)
    properties = console.formatter_properties()
    if form is None and (console.as_kafka or properties or console.formatter is not None):
        if not prints:
            return NoLines()
        return _as_kafka(buffer, printing, properties, _on_error(console, on_problem))
    if properties or console.formatter is not None:
        raise UsageError("--format and --property both say how to print")
    return _as_klog(buffer, printing, form or "value")


def _on_error(
    console: ConsoleOptions, on_problem: Callable[[KlogError], None]
) -> Callable[[KlogError], None]:
    def stop(error: KlogError) -> None:
        error.cure = error.cure or "--skip-message-on-error goes on"
        raise error

    return on_problem if console.skip_message_on_error else stop


def _as_kafka(
    buffer: OutputBuffer,
    printing: PrintOptions,
    properties: dict[str, str],
    on_error: Callable[[KlogError], None],
) -> Rendering:
    if printing.key_delimiter is not None:
        properties = {"print.key": "true", "key.separator": printing.key_delimiter, **properties}
    config = formatter_config(properties)
    if config.only_values:
        return ValueLines(buffer, LineStyle(printing.bytes_, config.null), config.line_separator, None)
    return KafkaLines(buffer, config, on_error)


def _as_klog(buffer: OutputBuffer, printing: PrintOptions, form: str) -> Rendering:
    mode, key_delimiter = printing.bytes_, printing.key_delimiter
    style = LineStyle(mode, unescape(printing.null))
    end = unescape(printing.delimiter)
    if form in JSON_FORMATS:
        return JsonLines(buffer, mode)
    if form == "value":
        return ValueLines(buffer, style, end, None if key_delimiter is None else unescape(key_delimiter))
    if "%" not in form:
        raise UsageError(f"--format {form!r} is unknown", cure="value, jsonl, or tokens like '%k %s'")
    # Users of kcat end their formats with \n, others do not: both get one record per line.
    return FormattedLines(buffer, Template(form, style), b"" if form.endswith(r"\n") else end)
