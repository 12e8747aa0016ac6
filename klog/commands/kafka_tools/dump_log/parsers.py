"""Chooses how keys and values are printed, by the decoder options of Kafka's dump tool.

Rules: the decoders of `org.apache.kafka.tools.api` (and their old names in `kafka.serializer`).
`internal` and `frames` print records of internal topics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from klog.commands.kafka_tools.dump_log.message_parser import MessageParser
from klog.commands.shared.records.plan import Decoder, KafkaFlags
from klog.formats.errors import CorruptRecordError, UsageError
from klog.kernel.text import java_text

_FieldDecoder = Callable[[bytes], str]

_PACKAGE: Final = "org.apache.kafka.tools.api."
_OLD_PACKAGE: Final = "kafka.serializer."
_STRING: Final = "StringDecoder"


def text_parser(key: bytes | None, value: bytes | None, _offset: int) -> tuple[str | None, str | None]:
    """Keys and values as UTF-8 text, which is the tool's default."""
    return None if key is None else java_text(key), None if value is None else java_text(value)


def unreadable_texts(
    flags: KafkaFlags, key: bytes | None, *, size: int, available: int, offset: int
) -> tuple[str | None, str | None]:
    """The texts for a legacy message whose value should have `size` bytes but has only `available`.

    Some decoders print the message of the JVM's exception. Raises CorruptRecordError for the others, with
    which the tool ends.
    """
    reason = f"skipping. newLimit > capacity: ({size} > {available})"
    if flags.decoder is Decoder.OFFSETS and key is not None:
        return f"Error at offset {offset}, {reason}", None
    if flags.decoder is Decoder.CLUSTER_METADATA:
        return None, f"Error at {offset}, {reason}"
    if flags.decoder is Decoder.REMOTE_LOG_METADATA:
        return None, f"Error at offset {offset}, {reason}"
    if flags.decoder is Decoder.TRANSACTION_LOG and key is not None and key[:2] not in (b"\0\0", key[:1]):
        # The tool does not read the value if the key has an unknown version.
        return _internal(flags.decoder)(key, None, offset)
    raise CorruptRecordError(f"message has a value of {size} bytes that does not fit it")


def _integer(data: bytes) -> str:
    if len(data) < 4:
        raise CorruptRecordError(f"IntegerDecoder needs 4 bytes, not {len(data)}")
    return str(int.from_bytes(data[:4], "big", signed=True))


def _long(data: bytes) -> str:
    if len(data) < 8:
        raise CorruptRecordError(f"LongDecoder needs 8 bytes, not {len(data)}")
    return str(int.from_bytes(data[:8], "big", signed=True))


def _bytes(_data: bytes) -> str:
    # Java prints the identity of the array, which differs from run to run.
    return "[B@0"


_DECODERS: Final[dict[str, _FieldDecoder]] = {
    _STRING: java_text,
    "IntegerDecoder": _integer,
    "LongDecoder": _long,
    "DefaultDecoder": _bytes,
}


def parser_of(flags: KafkaFlags) -> tuple[str, MessageParser | None]:
    """The tool's notes about deprecated names, and the parser, None for `text_parser`.

    Raises UsageError for classes that klog does not have.
    """
    if flags.decoder is not None:
        return "", _internal(flags.decoder)
    notes = ""
    chosen = []
    for class_name in (flags.value_decoder_class, flags.key_decoder_class):
        note, decoder = _decoder(class_name or _PACKAGE + _STRING)
        notes += note
        chosen.append(decoder)
    value_decoder, key_decoder = chosen
    if value_decoder is java_text and key_decoder is java_text:
        return notes, None

    def parse(key: bytes | None, value: bytes | None, _offset: int) -> tuple[str | None, str | None]:
        return (
            None if key is None else key_decoder(key),
            None if value is None else value_decoder(value),
        )

    return notes, parse


def _decoder(class_name: str) -> tuple[str, _FieldDecoder]:
    short = class_name.removeprefix(_PACKAGE)
    note = ""
    if class_name.startswith(_OLD_PACKAGE):
        short = class_name.removeprefix(_OLD_PACKAGE)
        note = f"{class_name} is deprecated. Please use {_PACKAGE}{short} instead\n"
    if short not in _DECODERS or short == class_name:
        raise UsageError(
            f"decoder class {class_name} is Java, which klog does not run",
            cure=f"klog has {_PACKAGE}{{{','.join(_DECODERS)}}}",
        )
    return note, _DECODERS[short]


def _internal(decoder: Decoder) -> MessageParser:
    # Imported here, since other dumps do not need the definitions.
    from klog.commands.kafka_tools.dump_log import internal

    return internal.PARSERS[decoder]


def control_text(key: bytes | None, value: bytes | None) -> str:
    """What the tool prints for a control record that is not a transaction marker.

    Raises CorruptRecordError.
    """
    from klog.commands.kafka_tools.dump_log import internal

    return internal.control_text(key, value)
