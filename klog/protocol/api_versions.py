"""ApiVersions: the first request of every client, which is answered in any version.

Rules: ApiVersionsRequest and ApiVersionsResponse of Kafka's message schemas; KIP-511: a version that the
broker does not know is answered with a body of version 0, which says UNSUPPORTED_VERSION and holds only the
range of ApiVersions. The response header always has version 0. KIP-584: since version 3 the response holds
the epoch of the cluster's finalized features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from klog.protocol.apis import SERVED, Api, ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.message_tables import Message, Part, Struct
from klog.protocol.primitives import Buffer, read_int16

FLEXIBLE_FROM: Final = 3
# A broker that knows of no finalized features sends no epoch.
UNKNOWN_FEATURES_EPOCH: Final = -1


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


class _Answer(NamedTuple):
    error_code: int
    apis: Sequence[tuple[int, int, int]]
    throttle_time_ms: int = 0
    features_epoch: int = UNKNOWN_FEATURES_EPOCH


_REQUEST: Final = Message(
    "ApiVersions request",
    FLEXIBLE_FROM,
    Struct(
        ClientSoftware,
        (
            Part("name", "string", since=FLEXIBLE_FROM, default=""),
            Part("version", "string", since=FLEXIBLE_FROM, default=""),
        ),
    ),
)
_RANGE: Final = Struct(
    tuple, (Part("key", "int16"), Part("min_version", "int16"), Part("max_version", "int16"))
)
_RESPONSE: Final = Message(
    "ApiVersions response",
    FLEXIBLE_FROM,
    Struct(
        _Answer,
        (
            Part("error_code", "int16"),
            Part("apis", _RANGE, array=list),
            Part("throttle_time_ms", "int32", since=1),
            Part("features_epoch", "int64", since=FLEXIBLE_FROM, tag=1, default=UNKNOWN_FEATURES_EPOCH),
        ),
    ),
)


def decode_api_versions_request(version: int, body: Buffer) -> ClientSoftware:
    """Decodes a request of a version that is served. Raises MalformedMessageError."""
    software: ClientSoftware = _REQUEST.read(version, body)
    return software


@lru_cache(maxsize=16)
def encode_api_versions_response(
    version: int, features_epoch: int = UNKNOWN_FEATURES_EPOCH, hidden: frozenset[int] = frozenset()
) -> bytes:
    """The response to a request of any version, also of unknown ones; `hidden` APIs are not announced."""
    own = SERVED[ApiKey.API_VERSIONS]
    if not own.has(version):
        return _encode(0, ErrorCode.UNSUPPORTED_VERSION, (own,))
    announced = tuple(api for key, api in SERVED.items() if key not in hidden)
    return _encode(version, ErrorCode.NONE, announced, features_epoch)


def encode_api_versions_refusal(version: int, error: ErrorCode) -> bytes:
    """The response to a request of a known version whose content is refused."""
    return _encode(version, error, ())


def _encode(
    version: int, error: ErrorCode, apis: tuple[Api, ...], features_epoch: int = UNKNOWN_FEATURES_EPOCH
) -> bytes:
    ranges = [(api.key, api.min_version, api.max_version) for api in apis]
    return b"".join(_RESPONSE.write(version, _Answer(error, ranges, 0, features_epoch)))


def encode_api_versions_request(version: int, software: ClientSoftware) -> bytes:
    """Encodes the body of a request."""
    return b"".join(_REQUEST.write(version, software))


def decode_api_versions_response(version: int, body: Buffer) -> ApiVersionsResponse:
    """Decodes a response. A body with UNSUPPORTED_VERSION has version 0, whatever the version of the request
    was.

    Raises MalformedMessageError.
    """
    if read_int16(body, 0)[0] == ErrorCode.UNSUPPORTED_VERSION:
        version = 0
    answer: _Answer = _RESPONSE.read(version, body)
    ranges = {key: VersionRange(low, high) for key, low, high in answer.apis}
    return ApiVersionsResponse(answer.error_code, ranges)
