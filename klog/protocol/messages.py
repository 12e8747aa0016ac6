"""Reads and writes headers, and messages by API key and version.

Rules: the protocol guide, "Protocol Structure"; RequestHeader and ResponseHeader of Kafka's message
schemas. In flexible versions a request header has tagged fields, and its client id stays a classic string.
A response header has tagged fields too, except that of ApiVersions, because the client does not know yet
which versions the broker supports (KIP-511).

The messages of Produce and Fetch have modules of their own (`produce_request` and so on).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from importlib import import_module
from typing import Final, NamedTuple

from klog.protocol.apis import SERVED, SPOKEN, Api, ApiKey, api_name
from klog.protocol.entity_codec import read_entity, write_entity
from klog.protocol.entity_fields import Entity, EntityField, Value, entity_fields
from klog.protocol.errors import MalformedMessageError, UnsupportedApiError
from klog.protocol.primitives import INT32, Buffer, read_string, read_tags, write_string

_REQUEST_HEAD: Final = struct.Struct(">hhi")


class RequestHeader(NamedTuple):
    """The header of a request; the body begins at `body_position_bytes` of the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position_bytes: int


@cache
def request_is_flexible(api_key: int, version: int) -> bool:
    """Whether a request of that version has the flexible header. Raises UnsupportedApiError.

    Every version of ApiVersions is accepted: a client newer than the broker must get an answer (KIP-511).
    """
    return _is_flexible(SERVED, api_key, version)


@cache
def _spoken_is_flexible(api_key: int, version: int) -> bool:
    """The same for what klog sends itself."""
    return _is_flexible(SPOKEN, api_key, version)


def _is_flexible(known: Mapping[int, Api], api_key: int, version: int) -> bool:
    api = known.get(api_key)
    if api is None:
        raise UnsupportedApiError(f"{api_name(api_key)} is not served")
    if not api.has(version) and api_key != ApiKey.API_VERSIONS:
        have = f"{api.min_version} to {api.max_version}"
        raise UnsupportedApiError(f"{api_name(api_key)} version {version} is not served, only {have}")
    return api.flexible(version)


def response_is_flexible(api_key: int, version: int) -> bool:
    """Whether the response's header carries tagged fields. Raises UnsupportedApiError."""
    return request_is_flexible(api_key, version) and api_key != ApiKey.API_VERSIONS


def decode_request_header(frame: Buffer) -> RequestHeader:
    """Raises UnsupportedApiError for what is not served, MalformedMessageError for what is no header."""
    if len(frame) < _REQUEST_HEAD.size:
        raise MalformedMessageError(f"a request of {len(frame)} bytes has no room for its header")
    api_key, version, correlation_id = _REQUEST_HEAD.unpack_from(frame, 0)
    flexible = request_is_flexible(api_key, version)
    client_id, position = read_string(frame, _REQUEST_HEAD.size, False)
    if flexible:
        position = read_tags(frame, position)[1]
    return RequestHeader(api_key, version, correlation_id, client_id, position)


def encode_request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Raises UnsupportedApiError."""
    end = b"\0" if _spoken_is_flexible(api_key, version) else b""
    return _REQUEST_HEAD.pack(api_key, version, correlation_id) + write_string(client_id, False) + end


def encode_response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Raises UnsupportedApiError."""
    return INT32.pack(correlation_id) + (b"\0" if response_is_flexible(api_key, version) else b"")


def decode_response_header(api_key: int, version: int, frame: Buffer) -> tuple[int, int]:
    """The correlation id, and where the body begins. Raises MalformedMessageError, UnsupportedApiError."""
    if len(frame) < INT32.size:
        raise MalformedMessageError(f"a response of {len(frame)} bytes has no room for its header")
    correlation_id: int = INT32.unpack_from(frame, 0)[0]
    flexible = api_key != ApiKey.API_VERSIONS and _spoken_is_flexible(api_key, version)
    return correlation_id, read_tags(frame, INT32.size)[1] if flexible else INT32.size


@cache
def request_class(api_key: int, version: int) -> type:
    """The entity class of a request; its module is imported on first use. Raises UnsupportedApiError."""
    return _entity_class(api_key, version, "Request")


@cache
def response_class(api_key: int, version: int) -> type:
    """The entity class of a response; its module is imported on first use. Raises UnsupportedApiError."""
    return _entity_class(api_key, version, "Response")


def _entity_class(api_key: int, version: int, kind: str) -> type:
    api = SPOKEN.get(api_key)
    if api is None or not api.has(version) or (module_name := api.module_name(version)) is None:
        raise UnsupportedApiError(
            f"no {api_name(api_key)} {kind.lower()} of version {version} is known as an entity"
        )
    if version < api.kio_from:
        from klog.protocol.legacy_versions.messages import legacy_class

        return legacy_class(api, version, kind)
    found: type = getattr(import_module(module_name), ApiKey(api_key).title + kind)
    return found


def decode_request(api_key: int, version: int, body: Buffer) -> Entity:
    """The request's entity. Raises MalformedMessageError, UnsupportedApiError."""
    return read_entity(request_class(api_key, version), body)


def decode_response(api_key: int, version: int, body: Buffer) -> Entity:
    """The response's entity. Raises MalformedMessageError, UnsupportedApiError."""
    return read_entity(response_class(api_key, version), body)


encode_request = encode_response = write_entity
"""The body of an entity. Raises UnencodableMessageError."""


@cache
def _fields(entity_type: type) -> Mapping[str, EntityField]:
    return {field.name: field for field in entity_fields(entity_type)}


@cache
def struct_of(entity_type: type, name: str) -> type:
    """The class of a field that is a struct or an array of structs. Raises KeyError, TypeError for others."""
    struct = _fields(entity_type)[name].struct
    if struct is None:
        raise TypeError(f"{name} of {entity_type.__name__} is no struct")
    return struct


def build(entity_type: type, /, **values: Value) -> Entity:
    """An entity from the values of all versions: fields that this version does not have are left out.

    So no code is needed for single versions. Structs may be given as mappings, arrays as any iterables, and
    durations and times in milliseconds.
    """
    fields = _fields(entity_type)
    return entity_type(
        **{name: _value(fields[name], value) for name, value in values.items() if name in fields}
    )


def _value(field: EntityField, value: Value) -> Value:
    if value is None:
        return None
    if field.array:
        return tuple(value if field.struct is None else [_struct(field.struct, each) for each in value])
    if field.struct is not None:
        return _struct(field.struct, value)
    if isinstance(value, int) and str(field.kafka_type).startswith("timedelta"):
        return timedelta(milliseconds=value)
    return value


def _struct(struct: type, value: Value) -> Entity:
    return build(struct, **value) if isinstance(value, Mapping) else value


def error_codes(entity_type: type, entity: Entity) -> set[int]:
    """All error codes of an answer of that class, those of its parts included."""
    found: set[int] = set()
    for field in _fields(entity_type).values():
        value = getattr(entity, field.name, None)
        if value is None:
            continue
        if field.name == "error_code":
            found.add(int(value))
        elif field.struct is not None:
            for part in value if field.array else (value,):
                found |= error_codes(field.struct, part)
    return found
