"""The place where requests are refused or slowed down before their handlers: authorisation and quotas.

Rules: Kafka's `KafkaApis.handle`, `RequestHandlerHelper` and KIP-219. A request that is refused is answered
with the error that its API has for that, or its connection closes if the API has none. A throttled client is
answered at once and told for how long; then its connection is not read for that time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from klog.protocol.error_codes import ErrorCode
from klog.protocol.file_slice import BodyPart
from klog.protocol.throttle_time import with_throttle_time
from klog.server.network.request import Request


class RequestGate(Protocol):
    """Decides about requests. Called from several threads."""

    def admit(self, request: Request) -> ErrorCode | None:
        """The error with which the request is refused; None if its handler may have it."""

    def throttle_ms(self, request: Request) -> int:
        """For how long the client is throttled after this request, in ms; called when its answer is there."""


class Throttling:
    """Writes a gate's throttle time into answers. Its `apply` is a request's `before_answer`."""

    def __init__(self, gate: RequestGate) -> None:
        self._gate = gate

    def apply(self, request: Request, body: Sequence[BodyPart] | None) -> Sequence[BodyPart] | None:
        """The body of the answer with the throttle time, which the request gets too."""
        throttle_ms = self._gate.throttle_ms(request)
        if throttle_ms <= 0:
            return body
        request.throttle_ms = throttle_ms
        if body is None:
            return None
        return with_throttle_time(request.api_key, request.api_version, body, throttle_ms)
