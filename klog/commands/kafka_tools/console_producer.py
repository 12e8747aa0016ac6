"""The options of `kafka-console-producer`, as options of `klog produce`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from klog.commands.shared.delivery import Acks, Codec, DeliveryOptions
from klog.commands.shared.option_sets import flag, option_set, optional, valued
from klog.commands.shared.properties import given_properties, is_true, properties_file
from klog.formats.errors import UsageError


def _hidden_number(name: str) -> Any:  # noqa: ANN401 (of the field's type)
    """An option of Kafka's tool about its own buffers and retries, which has no meaning here."""
    return optional(None, "", name, hidden=True, least=-1)


@option_set("As kafka-console-producer")
class ConsoleProducerOptions:
    """Options of Kafka's tool. The methods say what they mean."""

    kafka_topic: str | None = valued(
        "TOPIC",
        "The topic to write to; all arguments are records then. Lines may end in \\r or \\r\\n, too.",
        "--topic",
    )
    kcat_topic: str | None = valued("TOPIC", "The topic to write to.", "-t", panel="As kcat")
    properties: list[str] | None = valued(
        "KEY=VALUE",
        "How to parse lines: parse.key, parse.headers, ignore.error (true or false), key.separator, "
        "headers.delimiter, headers.separator, headers.key.separator, null.marker (repeatable).",
        "--property",
        "--reader-property",
    )
    reader_config: Path | None = valued("FILE", "A file of such properties.")
    line_reader: str | None = valued("CLASS", "LineMessageReader.")
    producer_property: list[str] | None = valued(
        "KEY=VALUE",
        "A property of Kafka's producer: acks, compression.type, enable.idempotence, and as in "
        "--command-config.",
    )
    producer_config: Path | None = valued("FILE", "A file of such properties.", "--producer.config")
    compression_codec: str | None = valued(
        "[CODEC]",
        "As --compression-type; gzip without a value.",
        without_value={"--compression-codec": Codec.GZIP.value},
    )
    request_required_acks: str | None = valued("ACKS", "As --acks.")
    sync: bool = flag("Wait for each record before sending the next.")
    broker_list: str | None = optional(None, "", hidden=True)
    batch_size: int | None = _hidden_number("--batch-size")
    linger_ms: int | None = _hidden_number("--timeout")
    max_memory_bytes: int | None = _hidden_number("--max-memory-bytes")
    max_partition_bytes: int | None = _hidden_number("--max-partition-memory-bytes")
    max_retries: int | None = _hidden_number("--message-send-max-retries")
    metadata_expiry_ms: int | None = _hidden_number("--metadata-expiry-ms")
    retry_backoff_ms: int | None = _hidden_number("--retry-backoff-ms")
    socket_buffer_bytes: int | None = _hidden_number("--socket-buffer-size")
    max_block_ms: int | None = _hidden_number("--max-block-ms")
    request_timeout_ms: int | None = _hidden_number("--request-timeout-ms")
    producer_mode: bool = flag("", "-P", hidden=True)

    def target(self, topic: str | None, values: Sequence[str]) -> tuple[str | None, list[str]]:
        """The topic and the records of the arguments. Raises UsageError if two topics are named."""
        if self.kafka_topic is not None and self.kcat_topic is not None:
            raise UsageError("two topics are named", cure="one of TOPIC, --topic and -t")
        named = self.kafka_topic if self.kcat_topic is None else self.kcat_topic
        if named is None:
            return topic, list(values)
        return named, [*(() if topic is None else (topic,)), *values]

    def reader_properties(self) -> dict[str, str]:
        """The properties that say how to parse lines."""
        found = properties_file(self.reader_config)
        return found | given_properties("--property", self.properties)

    def checked_reader_properties(self) -> dict[str, str]:
        """The same, after a check of the class. Raises UsageError for a class that klog does not have."""
        from klog.commands.kafka_tools.line_reader import check_reader_class

        check_reader_class(self.line_reader)
        return self.reader_properties()

    @property
    def as_kafka(self) -> bool:
        """Whether lines are read as by Kafka's tool."""
        return self.kafka_topic is not None or bool(self.reader_properties()) or self.line_reader is not None

    def producer_properties(self) -> dict[str, str]:
        """The properties of Kafka's producer. Raises UsageError."""
        found = properties_file(self.producer_config)
        return found | given_properties("--producer-property", self.producer_property)

    def delivery(self, given: DeliveryOptions, properties: Mapping[str, str]) -> DeliveryOptions:
        """The delivery with what Kafka's options and properties say; klog's own options take precedence."""
        changes: dict[str, object] = {}
        codec = self.compression_codec or properties.get("compression.type")
        if codec is not None and given.compression_type is Codec.NONE:
            changes["compression_type"] = _choice(Codec, "compression codec", codec)
        acks = self.request_required_acks or properties.get("acks")
        if acks is not None and given.acks is Acks.ALL:
            changes["acks"] = _choice(Acks, "acks", acks)
        if given.idempotence is None and "enable.idempotence" in properties:
            changes["idempotence"] = is_true(properties, "enable.idempotence")
        if self.kafka_topic is not None or self.kcat_topic is not None:
            changes["quiet"] = True
        return replace(given, **changes)  # type: ignore[arg-type]  # each value is of its field's type


def _choice(kind: type[Codec] | type[Acks], name: str, text: str) -> Codec | Acks:
    if text not in list(kind):
        raise UsageError(f"{name} {text!r} is unknown", cure=f"one of {', '.join(kind)}")
    return kind(text)
