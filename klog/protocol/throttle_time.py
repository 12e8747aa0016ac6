"""Writes into an encoded response for how long the client is throttled.

Rules: `throttle_time_ms` of Kafka's response schemas; KIP-219. Most responses begin with it. Those of Produce
and ApiVersions have it after arrays, so they are decoded and encoded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from typing import Final

from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.entity_fields import entity_fields
from klog.protocol.file_slice import BodyPart, FileSlice, LazyBytes
from klog.protocol.messages import build, decode_response, encode_response, response_class
from klog.protocol.primitives import INT32
from klog.protocol.produce_response import decode_produce_response, encode_produce_response

_PRODUCE_FROM: Final = 1
_FETCH_FROM: Final = 1
_FIELD: Final = "throttle_time"


@cache
def throttle_time_field(api_key: int, version: int) -> int | None:
    """Which field of a version's response is the throttle time, counted from 0; None if it has none."""
    api = SERVED.get(api_key)
    if api is None or not api.has(version):
        return None
    if api_key == ApiKey.FETCH:
        return 0 if version >= _FETCH_FROM else None
    if api_key == ApiKey.PRODUCE:
        return 1 if version >= _PRODUCE_FROM else None
    names = [field.name for field in entity_fields(response_class(api_key, version))]
    return names.index(_FIELD) if _FIELD in names else None


def with_throttle_time(
    api_key: int, version: int, body: Sequence[BodyPart], throttle_ms: int
) -> Sequence[BodyPart]:
    """The same response body with that throttle time; unchanged if the version has no such field.

    Raises MalformedMessageError if the body is no response of that version.
    """
    number = throttle_time_field(api_key, version)
    if number is None or not body:
        return body
    first = body[0]
    if number == 0 and not isinstance(first, FileSlice | LazyBytes):
        return [INT32.pack(throttle_ms) + bytes(first[INT32.size :]), *body[1:]]
    whole = b"".join(part for part in body if not isinstance(part, FileSlice | LazyBytes))
    if api_key == ApiKey.PRODUCE:
        produced = decode_produce_response(version, whole)._replace(throttle_time_ms=throttle_ms)
        return [encode_produce_response(version, produced)]
    response = decode_response(api_key, version, whole)
    names = [field.name for field in entity_fields(type(response))]
    values = {name: getattr(response, name) for name in names}
    values[_FIELD] = timedelta(milliseconds=throttle_ms)
    return [encode_response(build(type(response), **values))]
