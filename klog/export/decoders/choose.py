"""Chooses the decoder of a decoding, and resolves a requested decoding to one that all tasks use."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable

from klog.export.decoders.decoder import Decoder
from klog.export.decoders.decoding import RAW, Decoding, Encoding, RequestedDecoding
from klog.export.decoders.wire import RegisteredSchema, ids_in, read_schemas
from klog.formats.errors import UsageError
from klog.formats.optional import require_pyarrow
from klog.replicas.files import read_small

Samples = Callable[[], Iterable[bytes]]


def decoder_of(decoding: Decoding) -> Decoder | None:
    """The decoder of a decoding; None if bytes stay as they are. Raises UsageError for an invalid schema."""
    if decoding.encoding is Encoding.RAW:
        return None
    require_pyarrow("decoding keys and values")
    if decoding.encoding is Encoding.STRING:
        from klog.export.decoders.text import StringDecoder

        return StringDecoder()
    if decoding.encoding is Encoding.JSON:
        from klog.export.decoders.json import JsonDecoder
        from klog.export.decoders.registered import RegisteredJson
        from klog.export.decoders.types_ddl import parse_type

        json = JsonDecoder(parse_type(decoding.schema))
        return RegisteredJson(json) if decoding.framed else json
    if decoding.encoding is Encoding.AVRO:
        from klog.export.decoders.avro import AvroDecoder
        from klog.export.decoders.registered import RegisteredAvro

        avro = AvroDecoder(decoding.schema)
        return RegisteredAvro(avro, decoding.registered) if decoding.framed else avro
    from klog.export.decoders.protobuf import ProtobufDecoder
    from klog.export.decoders.registered import RegisteredProtobuf

    protobuf = ProtobufDecoder(decoding.schema, decoding.message)
    return RegisteredProtobuf(protobuf, decoding.registered) if decoding.framed else protobuf


def resolve_decoding(requested: RequestedDecoding, samples: Samples) -> Decoding:
    """The decoding for a request. Raises UsageError and StorageError.

    `samples` gives values of the column. It is called only to infer a JSON schema, or to find out which
    registered schemas are in use.
    """
    if requested.encoding in (Encoding.RAW, Encoding.STRING):
        if requested.schema or requested.message or requested.schema_directory:
            raise UsageError(f"{requested.encoding} takes no schema", cure="name json, avro or protobuf")
        return RAW if requested.encoding is Encoding.RAW else Decoding(requested.encoding)
    if requested.message and requested.encoding is not Encoding.PROTOBUF:
        raise UsageError("only protobuf has messages", cure="leave out the name of the message")
    decoding = (
        _from_directory(requested, samples)
        if requested.schema_directory
        else _from_schema(requested, samples)
    )
    decoder_of(decoding)  # an invalid schema is an error before the job starts
    return decoding


def _from_schema(requested: RequestedDecoding, samples: Samples) -> Decoding:
    if requested.schema:
        return Decoding(requested.encoding, _schema_text(requested), requested.message)
    if requested.encoding is not Encoding.JSON:
        raise UsageError(f"{requested.encoding} takes a schema", cure="give one, or a directory of schemas")
    from klog.export.decoders.json_schemas import infer
    from klog.export.decoders.types_ddl import type_text

    return Decoding(requested.encoding, type_text(infer(samples())))


def _from_directory(requested: RequestedDecoding, samples: Samples) -> Decoding:
    kind = requested.encoding.upper()
    schemas = {
        number: schema
        for number, schema in read_schemas(requested.schema_directory).items()
        if schema.kind == kind
    }
    if not schemas:
        raise UsageError(f"no {kind} schema in {requested.schema_directory}")
    text = _schema_text(requested) if requested.schema else _newest_in_use(requested, schemas, samples)
    registered = tuple(schemas[number] for number in sorted(schemas))
    return Decoding(requested.encoding, text, requested.message, framed=True, registered=registered)


def _newest_in_use(
    requested: RequestedDecoding, schemas: dict[int, RegisteredSchema], samples: Samples
) -> str:
    """The schema with the highest id that records name: the one of the topic's newest producer."""
    used = ids_in(samples())
    known = [number for number in used if number in schemas]
    if not known:
        named = ", ".join(map(str, used)) or "none at all"
        raise UsageError(
            f"records name the schemas {named}, none of them is in {requested.schema_directory}",
            cure="put them there, or give the schema to read with",
        )
    text = schemas[known[-1]].text
    return _json_type(text) if requested.encoding is Encoding.JSON else text


def _schema_text(requested: RequestedDecoding) -> str:
    if requested.encoding is Encoding.PROTOBUF:
        return base64.b64encode(read_small(requested.schema)).decode("ascii")
    text = requested.schema
    if not _is_schema(text):
        try:
            text = read_small(text).decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"{requested.schema} is not text: {error.reason}") from None
    is_json_schema = requested.encoding is Encoding.JSON and text.lstrip().startswith("{")
    return _json_type(text) if is_json_schema else text


def _is_schema(text: str) -> bool:
    """Whether the text is a schema and not the path of one: JSON, or a type of more than one word."""
    return text.lstrip().startswith(("{", "[", '"')) or " " in text.strip() or "<" in text


def _json_type(text: str) -> str:
    from klog.export.decoders.json_schemas import from_json_schema
    from klog.export.decoders.types_ddl import type_text

    return type_text(from_json_schema(text))
