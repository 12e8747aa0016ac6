"""The classes that requests and responses are made of, by the names that Kafka's schemas give them."""

from __future__ import annotations

from collections.abc import Iterator

from klog.protocol.entity_fields import entity_fields
from klog.protocol.messages import request_class, response_class


def request_struct(api_key: int, version: int, name: str) -> type:
    """A class that a request is made of. Raises AttributeError."""
    return _struct(request_class(api_key, version), name)


def response_struct(api_key: int, version: int, name: str) -> type:
    """A class that a response is made of. Raises AttributeError."""
    return _struct(response_class(api_key, version), name)


def _struct(message: type, name: str) -> type:
    for found in _structs(message):
        if found.__name__ == name:
            return found
    raise AttributeError(f"{message.__name__} has no {name}")


def _structs(entity_type: type) -> Iterator[type]:
    yield entity_type
    for field in entity_fields(entity_type):
        if field.struct is not None:
            yield from _structs(field.struct)
