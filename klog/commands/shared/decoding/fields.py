"""Decodes lists of keys or values to JSON texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from klog.commands.shared.decoding.field_encoding import FieldEncoding
from klog.export.decoders.choose import decoder_of, resolve_decoding
from klog.export.decoders.decoder import DecodeError, Decoder
from klog.export.decoders.decoding import Encoding, RequestedDecoding
from klog.export.decoders.registry import SchemaSource
from klog.export.decoders.wire import RegisteredSchema, split_header
from klog.formats.errors import UsageError
from klog.formats.optional import require_pyarrow


class Texts(NamedTuple):
    """The JSON text of each row that was decoded, and why others could not be. Rows in neither stay bytes."""

    texts: dict[int, str]
    errors: dict[int, str]


class FieldDecoder(Protocol):
    """Decodes one field of records."""

    def decode(self, values: Sequence[bytes | None]) -> Texts:
        """Decode a list; null stays null."""


class RecordDecoder(NamedTuple):
    """The decoders of keys and of values; None leaves the bytes as they are."""

    key: FieldDecoder | None
    value: FieldDecoder | None


def field_decoder(
    field: str,
    encoding: FieldEncoding | None,
    schema: str | None,
    message: str | None,
    source: SchemaSource | None,
) -> FieldDecoder | None:
    """The decoder of a field. Raises UsageError, StorageError for a schema that cannot be used."""
    if encoding is None and (schema is not None or message is not None):
        raise UsageError(f"--{field}-schema needs the encoding", cure=f"--decode-{field} avro or protobuf")
    if schema is None and source is not None:
        return RegisteredFields(source, None if encoding is None else encoding.upper())
    if encoding is None:
        return None
    if encoding is FieldEncoding.JSON and schema is None:
        return JsonFields()
    requested = RequestedDecoding(Encoding(encoding), schema or "", message or "")
    decoder = decoder_of(resolve_decoding(requested, tuple))
    return None if decoder is None else TypedFields(decoder)


class JsonFields:
    """Passes JSON on, after a check."""

    def decode(self, values: Sequence[bytes | None]) -> Texts:
        """Decode a list of JSON texts."""
        found = Texts({}, {})
        for row, value in enumerate(values):
            if value is not None:
                _add(found, row, lambda value=value: _json_text(value))  # type: ignore[misc]
        return found


def _add(found: Texts, row: int, decode: Callable[[], str]) -> None:
    try:
        found.texts[row] = decode()
    except DecodeError as error:
        found.errors[row] = str(error)


def _json_text(value: bytes) -> str:
    try:
        return json.dumps(json.loads(value), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not JSON: {error}") from None


class TypedFields:
    """Decodes with a decoder of `klog export`, whose types and texts it has."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def decode(self, values: Sequence[bytes | None]) -> Texts:
        """Decode a list of bare data."""
        require_pyarrow("decoding Avro, Protobuf and typed JSON")
        import pyarrow as pa

        from klog.export.json_lines import lines_of

        decoded, errors = self._decoder.decode(pa.array(values, pa.binary()))
        lines = lines_of(pa.RecordBatch.from_arrays([decoded], names=["v"])).decode().splitlines()
        texts = {
            row: line[len('{"v":') : -1]
            for row, line in enumerate(lines)
            if values[row] is not None and row not in errors
        }
        return Texts(texts, dict(errors))


class RegisteredFields:
    """Decodes what is in Confluent's wire format, each value with the schema that it names.

    With a `kind` (AVRO, JSON, PROTOBUF) everything must be of it; without one, bytes in another format stay.
    """

    def __init__(self, source: SchemaSource, kind: str | None) -> None:
        self._source = source
        self._kind = kind
        self._decoders: dict[tuple[int, tuple[int, ...]], FieldDecoder | DecodeError] = {}

    def decode(self, values: Sequence[bytes | None]) -> Texts:
        """Decode a list of framed data."""
        found = Texts({}, {})
        by_place: dict[tuple[int, tuple[int, ...]], dict[int, bytes]] = {}
        for row, value in enumerate(values):
            if value is None:
                continue
            try:
                place, data = self._framed(value)
            except _UnframedError as error:
                if self._kind is not None:
                    found.errors[row] = str(error)
            except DecodeError as error:
                found.errors[row] = str(error)
            else:
                by_place.setdefault(place, {})[row] = data
        for place, rows in by_place.items():
            self._decode_rows(place, rows, found)
        return found

    def _framed(self, value: bytes) -> tuple[tuple[int, tuple[int, ...]], bytes]:
        """The schema's id with the path of the message (for protobuf), and the data."""
        from klog.export.decoders.registered import message_path

        try:
            schema_id, data = split_header(value)
        except DecodeError as error:
            raise _UnframedError(str(error)) from None
        schema = self._source.schema(schema_id)
        if self._kind not in (None, schema.kind):
            raise DecodeError(f"names schema {schema_id}, which is {schema.kind} and not {self._kind}")
        if schema.kind != "PROTOBUF":
            return (schema_id, ()), data
        path, start = message_path(data)
        return (schema_id, tuple(path)), data[start:]

    def _decode_rows(
        self, place: tuple[int, tuple[int, ...]], rows: Mapping[int, bytes], found: Texts
    ) -> None:
        decoder = self._decoder(place)
        if isinstance(decoder, DecodeError):
            found.errors.update(dict.fromkeys(rows, str(decoder)))
            return
        numbers = list(rows)
        decoded = decoder.decode(list(rows.values()))
        found.texts.update({numbers[at]: text for at, text in decoded.texts.items()})
        found.errors.update({numbers[at]: why for at, why in decoded.errors.items()})

    def _decoder(self, place: tuple[int, tuple[int, ...]]) -> FieldDecoder | DecodeError:
        if place not in self._decoders:
            try:
                self._decoders[place] = _decoder_of(self._source.schema(place[0]), place[1])
            except UsageError as error:
                self._decoders[place] = DecodeError(f"names schema {place[0]}: {error}")
            except IndexError:
                self._decoders[place] = DecodeError(
                    f"is message {list(place[1])} of schema {place[0]}, which has no message there"
                )
        return self._decoders[place]


class _UnframedError(DecodeError):
    """The bytes are not in the wire format."""


def _decoder_of(schema: RegisteredSchema, path: tuple[int, ...]) -> FieldDecoder:
    if schema.kind == "JSON":
        return JsonFields()
    if schema.kind == "AVRO":
        from klog.export.decoders.avro import AvroDecoder

        return TypedFields(AvroDecoder(schema.text))
    if schema.kind == "PROTOBUF":
        from klog.export.decoders.protobuf import MessageTypes, ProtobufDecoder

        name = MessageTypes(schema.text).at_path(list(path)).full_name
        return TypedFields(ProtobufDecoder(schema.text, name))
    raise UsageError(f"{schema.kind} is no encoding that klog knows")
