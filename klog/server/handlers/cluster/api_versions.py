"""Answers ApiVersions requests with the versions of all APIs that this broker supports.

Rules: Kafka's `KafkaApis.handleApiVersionsRequest`, `ApiVersionsRequest.isValid`; KIP-511: any version is
answered, and from version 3 on a client says its name and version, which must look like names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final

from klog.protocol.api_versions import (
    FLEXIBLE_FROM,
    decode_api_versions_request,
    encode_api_versions_refusal,
    encode_api_versions_response,
)
from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.primitives import Buffer
from klog.security.authentication.exchange import ApiVersionsAnswer
from klog.server.network.request import Request

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersionsHandler:
    """Answers ApiVersions requests.

    `features_epoch` is that of the cluster's finalized features. `hidden` APIs are not announced.
    """

    def __init__(self, features_epoch: Callable[[], int], hidden: Collection[int] = ()) -> None:
        self._features_epoch = features_epoch
        self._hidden = frozenset(hidden)

    def handle(self, request: Request) -> None:
        """Answer at once."""
        request.respond([self.answer(request.api_version, request.body).body])

    def answer(self, version: int, body: Buffer) -> ApiVersionsAnswer:
        """The answer to any version, also before authentication. Raises MalformedMessageError."""
        if not SERVED[ApiKey.API_VERSIONS].has(version):
            return ApiVersionsAnswer(encode_api_versions_response(version), accepted=False)
        if version >= FLEXIBLE_FROM:
            software = decode_api_versions_request(version, body)
            if not (_SOFTWARE.fullmatch(software.name) and _SOFTWARE.fullmatch(software.version)):
                refusal = encode_api_versions_refusal(version, ErrorCode.INVALID_REQUEST)
                return ApiVersionsAnswer(refusal, accepted=False)
        answer = encode_api_versions_response(version, self._features_epoch(), self._hidden)
        return ApiVersionsAnswer(answer, accepted=True)
