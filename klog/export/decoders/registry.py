"""Gets registered schemas by id: from a directory, or from a schema registry.

Rules: Confluent Schema Registry documentation, API reference (`GET /schemas/ids/{id}`, `GET
/subjects/{subject}/versions/{version}`, `format=serialized` for protobuf), "Schema References". The module
does no I/O of its own: `get` is passed in.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote

from klog.export.decoders.decoder import DecodeError
from klog.export.decoders.wire import RegisteredSchema, read_schemas
from klog.formats.errors import UsageError
from klog.formats.optional import install_command

Get = Callable[[str], bytes | None]
"""Gets a path of the registry, such as `/schemas/ids/42`; None if the registry does not have it."""

_MOST_REFERENCES: Final = 200
_NAMED: Final = ("record", "enum", "fixed", "error")


class SchemaSource(Protocol):
    """Where schemas come from."""

    def schema(self, schema_id: int) -> RegisteredSchema:
        """The schema with this id. Raises DecodeError if there is none or it cannot be used."""


class DirectorySource:
    """Schemas of a directory, one file for each id (see `wire`). Raises UsageError, StorageError."""

    def __init__(self, directory: str) -> None:
        self._schemas = read_schemas(directory)
        self._directory = directory

    def schema(self, schema_id: int) -> RegisteredSchema:
        """The schema with this id. Raises DecodeError if the directory has no file for it."""
        if schema_id not in self._schemas:
            raise DecodeError(f"names schema {schema_id}, which is not in {self._directory}")
        return self._schemas[schema_id]


class RegistrySource:
    """Schemas of a registry; each is asked for once, also if the registry does not have it."""

    def __init__(self, get: Get) -> None:
        self._get = get
        self._found: dict[int, RegisteredSchema | DecodeError] = {}

    def schema(self, schema_id: int) -> RegisteredSchema:
        """The schema with this id. Raises DecodeError if the registry does not have it."""
        if schema_id not in self._found:
            try:
                self._found[schema_id] = self._asked(schema_id)
            except DecodeError as error:
                self._found[schema_id] = error
        found = self._found[schema_id]
        if isinstance(found, DecodeError):
            raise found
        return found

    def _asked(self, schema_id: int) -> RegisteredSchema:
        answer = self._answer(f"/schemas/ids/{schema_id}")
        if answer is None:
            raise DecodeError(f"names schema {schema_id}, which the registry does not have")
        kind = answer.get("schemaType", "AVRO")
        if kind == "PROTOBUF":
            serialized = self._answer(f"/schemas/ids/{schema_id}?format=serialized") or answer
            return RegisteredSchema(schema_id, kind, self._file_set(schema_id, serialized))
        text = answer["schema"]
        if kind == "AVRO" and answer.get("references"):
            text = json.dumps(_inlined(_parsed(text), self._avro_references(answer)))
        return RegisteredSchema(schema_id, kind, text)

    def _answer(self, path: str) -> Mapping[str, Any] | None:
        data = self._get(path)
        if data is None:
            return None
        answer = _parsed(data)
        if not isinstance(answer, Mapping) or not isinstance(answer.get("schema"), str):
            raise DecodeError(f"the registry's answer to {path} has no schema")
        return answer

    def _referenced(self, reference: Mapping[str, Any], suffix: str) -> Mapping[str, Any]:
        subject, version = quote(str(reference.get("subject")), safe=""), reference.get("version")
        answer = self._answer(f"/subjects/{subject}/versions/{version}{suffix}")
        if answer is None:
            raise DecodeError(f"the registry does not have {subject} version {version}, which a schema needs")
        return answer

    def _avro_references(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The definitions of all types that a schema refers to, by full name."""
        found: dict[str, Any] = {}
        waiting = list(answer.get("references") or ())
        while waiting and len(found) < _MOST_REFERENCES:
            reference = waiting.pop()
            if reference["name"] in found:
                continue
            referenced = self._referenced(reference, "")
            found[reference["name"]] = _parsed(referenced["schema"])
            waiting += referenced.get("references") or ()
        return found

    def _file_set(self, schema_id: int, answer: Mapping[str, Any]) -> str:
        """The schema and all files that it imports as one compiled file set, in base64."""
        try:
            from google.protobuf import descriptor_pb2
        except ImportError:
            raise UsageError("protobuf needs its library", cure=install_command("protobuf")) from None
        files: dict[str, Any] = {}
        self._add_file(f"schema-{schema_id}.proto", answer, files)
        whole = descriptor_pb2.FileDescriptorSet(file=files.values())
        return base64.b64encode(whole.SerializeToString()).decode("ascii")

    def _add_file(self, name: str, answer: Mapping[str, Any], files: dict[str, Any]) -> None:
        """Add a file behind those that it imports."""
        from google.protobuf import descriptor_pb2
        from google.protobuf.message import DecodeError as ProtobufError

        try:
            file = descriptor_pb2.FileDescriptorProto.FromString(
                base64.b64decode(answer["schema"], validate=True)
            )
        except (ValueError, ProtobufError):
            raise DecodeError(
                f"the registry gives {name} as protobuf source only; compile it (protoc --include_imports -o "
                "ID.desc) and name its directory by --schema-dir"
            ) from None
        file.name = name
        for reference in answer.get("references") or ():
            if reference["name"] not in files and len(files) < _MOST_REFERENCES:
                self._add_file(reference["name"], self._referenced(reference, "?format=serialized"), files)
        for imported in file.dependency:
            if imported not in files:
                files[imported] = _well_known(imported, name)
        files[name] = file


def _well_known(name: str, importer: str) -> Any:  # noqa: ANN401 (a class of the protobuf library)
    """A file that comes with protobuf, such as `google/protobuf/timestamp.proto`."""
    import importlib

    from google.protobuf import descriptor_pb2

    if name.startswith("google/protobuf/") and name.endswith(".proto"):
        module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
        try:
            found = descriptor_pb2.FileDescriptorProto()
            importlib.import_module(module).DESCRIPTOR.CopyToProto(found)
        except ImportError:
            pass
        else:
            return found
    raise DecodeError(f"{importer} imports {name}, which the registry does not name as a reference")


def _parsed(text: str | bytes) -> Any:  # noqa: ANN401 (JSON)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"the registry's answer is not JSON: {error}") from None


def _inlined(schema: Any, definitions: Mapping[str, Any], done: set[str] | None = None) -> Any:  # noqa: ANN401
    """An Avro schema with the definition of each referenced type where it is named for the first time."""
    done = set() if done is None else done
    if isinstance(schema, str):
        if schema in definitions and schema not in done:
            done.add(schema)
            return _inlined(definitions[schema], definitions, done)
        return schema
    if isinstance(schema, list):
        return [_inlined(each, definitions, done) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") in _NAMED and "fields" not in schema:
        return schema
    if "fields" in schema:
        fields = [{**field, "type": _inlined(field["type"], definitions, done)} for field in schema["fields"]]
        return {**schema, "fields": fields}
    return {
        key: _inlined(inner, definitions, done) if key in ("type", "items", "values") else inner
        for key, inner in schema.items()
    }
