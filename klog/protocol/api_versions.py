"""ApiVersions: the first request of every client, which is answered in any version.

Rules: ApiVersionsRequest and ApiVersionsResponse of Kafka's message schemas; KIP-511: a version that the
broker does not know is answered with a body of version 0, which says UNSUPPORTED_VERSION and holds only the
range of ApiVersions. The response header always has version 0. KIP-584: since version 3 the response holds
the epoch of the cluster's finalized features. The messages are written by hand, because every client gets the
same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from klog.protocol.apis import SERVED, Api, ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import MalformedMessageError
from klog.protocol.primitives import (
    INT16,
    INT32,
    INT64,
    Buffer,
    read_int16,
    read_items,
    read_name,
    read_tags,
    write_bytes_size,
)

FLEXIBLE_FROM: Final = 3
# A broker that knows of no finalized features sends no epoch.
UNKNOWN_FEATURES_EPOCH: Final = -1
_RANGE: Final = struct.Struct(">hhh")
_FEATURES_EPOCH_TAG: Final = 1
_NO_TAGS: Final = b"\0"


class VersionRange(NamedTuple):
    """The versions of one API, both ends included."""

    min_version: int
    max_version: int


class ApiVersionsResponse(NamedTuple):
    """The versions that a broker serves."""

    error_code: int
    apis: Mapping[int, VersionRange]


class ClientSoftware(NamedTuple):
    """The name and version of a client's software, which ApiVersions 3 and later contain."""

    name: str = ""
    version: str = ""


def decode_api_versions_request(version: int, body: Buffer) -> ClientSoftware:
    """Decodes a request of a version that is served. Raises MalformedMessageError."""
    if version < FLEXIBLE_FROM:
        return ClientSoftware()
    name, position = read_name(body, 0, True)
    number, position = read_name(body, position, True)
    read_tags(body, position)
    return ClientSoftware(name, number)


@lru_cache(maxsize=16)
def encode_api_versions_response(
    version: int, features_epoch: int = UNKNOWN_FEATURES_EPOCH, hidden: frozenset[int] = frozenset()
) -> bytes:
    """The response to a request of any version, also of unknown ones; `hidden` APIs are not announced."""
    own = SERVED[ApiKey.API_VERSIONS]
    if not own.has(version):
        return _encode(0, ErrorCode.UNSUPPORTED_VERSION, (own,), _NO_TAGS)
    return _encode(
        version,
        ErrorCode.NONE,
        tuple(api for key, api in SERVED.items() if key not in hidden),
        _tags(features_epoch),
    )


def encode_api_versions_refusal(version: int, error: ErrorCode) -> bytes:
    """The response to a request of a known version whose content is refused."""
    return _encode(version, error, (), _NO_TAGS)


def _tags(features_epoch: int) -> bytes:
    """The tagged fields of the response. There are no features in ZooKeeper mode."""
    if features_epoch == UNKNOWN_FEATURES_EPOCH:
        return _NO_TAGS
    return bytes((1, _FEATURES_EPOCH_TAG, INT64.size)) + INT64.pack(features_epoch)


def _encode(version: int, error: ErrorCode, apis: tuple[Api, ...], tags: bytes) -> bytes:
    flexible = version >= FLEXIBLE_FROM
    end = _NO_TAGS if flexible else b""
    parts = [INT16.pack(error), write_bytes_size(len(apis), flexible)]
    parts += [_RANGE.pack(api.key, api.min_version, api.max_version) + end for api in apis]
    if version >= 1:
        parts.append(INT32.pack(0))
    if flexible:
        parts.append(tags)
    return b"".join(parts)


def encode_api_versions_request(version: int, software: ClientSoftware) -> bytes:
    """Encodes the body of a request."""
    if version < FLEXIBLE_FROM:
        return b""
    name, number = software.name.encode(), software.version.encode()
    return b"".join(
        (write_bytes_size(len(name), True), name, write_bytes_size(len(number), True), number, b"\0")
    )


def decode_api_versions_response(version: int, body: Buffer) -> ApiVersionsResponse:
    """Decodes a response. A body with UNSUPPORTED_VERSION has version 0, whatever the version of the request
    was.

    Raises MalformedMessageError.
    """
    error_code, position = read_int16(body, 0)
    flexible = version >= FLEXIBLE_FROM and error_code != ErrorCode.UNSUPPORTED_VERSION
    count, position = read_items(body, position, flexible)
    apis = {}
    for _ in range(count):
        try:
            key, low, high = _RANGE.unpack_from(body, position)
        except struct.error as error:
            raise MalformedMessageError("the ApiVersions response ends too early") from error
        position += _RANGE.size
        if flexible:
            position = read_tags(body, position)[1]
        apis[key] = VersionRange(low, high)
    return ApiVersionsResponse(error_code, apis)
