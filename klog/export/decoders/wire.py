"""Reads Confluent's wire format (a zero byte, the id of a schema in 4 bytes, the data), and the schemas by
id.

Rules: Confluent Schema Registry documentation, "Wire format". No registry is contacted: the schemas are in a
directory, one file for each id: `42.avsc` (Avro), `42.json` (a JSON Schema, or the registry's response to
`GET /schemas/ids/42`), `42.desc` (protobuf, by `protoc --include_imports -o`).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from klog.export.decoders.decoder import DecodeError
from klog.formats.errors import UsageError
from klog.replicas.files import base_name, list_directory, read_small

HEADER_BYTES: Final = 5
_MAGIC: Final = 0
_FILE_NAME: Final = re.compile(r"(\d{1,10})\.(avsc|json|desc)")
_SUFFIX_KINDS: Final = {"avsc": "AVRO", "json": "JSON", "desc": "PROTOBUF"}


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema with its id in the registry; `kind` is AVRO, JSON or PROTOBUF, as in the registry.

    `text` is the schema; for protobuf it is the compiled descriptors in base64.
    """

    schema_id: int
    kind: str
    text: str


def split_header(value: bytes) -> tuple[int, bytes]:
    """The id of the schema and the data. Raises DecodeError."""
    if len(value) < HEADER_BYTES or value[0] != _MAGIC:
        raise DecodeError(
            "not in the wire format of a schema registry: it does not start with a zero byte and a schema id"
        )
    return int.from_bytes(value[1:HEADER_BYTES], "big"), value[HEADER_BYTES:]


def ids_in(values: Iterable[bytes]) -> list[int]:
    """The ids that the values name, each once, in ascending order."""
    found = {
        int.from_bytes(value[1:HEADER_BYTES], "big")
        for value in values
        if len(value) >= HEADER_BYTES and value[0] == _MAGIC
    }
    return sorted(found)


def read_schemas(directory: str) -> dict[int, RegisteredSchema]:
    """All schemas of a directory, by id. Raises UsageError and StorageError."""
    found: dict[int, RegisteredSchema] = {}
    for entry in list_directory(directory):
        match = _FILE_NAME.fullmatch(base_name(entry.path))
        if match is None or entry.is_directory:
            continue
        schema = _registered(int(match[1]), match[2], read_small(entry.path), entry.path)
        if schema.schema_id in found:
            raise UsageError(f"two files for schema {schema.schema_id} in {directory}")
        found[schema.schema_id] = schema
    if not found:
        raise UsageError(
            f"no schema in {directory}", cure="files are named by the schema's id: 42.avsc, 42.json, 42.desc"
        )
    return found


def _registered(schema_id: int, suffix: str, data: bytes, path: str) -> RegisteredSchema:
    if suffix == "desc":
        return RegisteredSchema(schema_id, _SUFFIX_KINDS[suffix], base64.b64encode(data).decode("ascii"))
    try:
        text = data.decode("utf-8")
        content = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if suffix == "json" and isinstance(content, Mapping) and isinstance(content.get("schema"), str):
        return _from_response(schema_id, content, path)
    return RegisteredSchema(schema_id, _SUFFIX_KINDS[suffix], text)


def _from_response(schema_id: int, response: Mapping[str, str], path: str) -> RegisteredSchema:
    """The schema in a response of the registry, which leaves out the kind of Avro schemas."""
    kind = response.get("schemaType", "AVRO")
    if response.get("references"):
        raise UsageError(
            f"schema {schema_id} in {path} refers to others", cure="save it with its references resolved"
        )
    if kind == "PROTOBUF":
        raise UsageError(
            f"schema {schema_id} in {path} is protobuf source",
            cure=f"compile it: protoc --include_imports -o {schema_id}.desc",
        )
    return RegisteredSchema(schema_id, kind, response["schema"])
