"""The place where requests are refused before their handlers: authorisation.

Rules: Kafka's `KafkaApis.handle` and `RequestHandlerHelper`. A request that is refused is answered with the
error that its API has for that, or its connection closes if the API has none.
"""

from __future__ import annotations

from typing import Protocol

from klog.protocol.error_codes import ErrorCode
from klog.server.network.request import Request


class RequestGate(Protocol):
    """Decides about requests. Called from several threads."""

    def admit(self, request: Request) -> ErrorCode | None:
        """The error with which the request is refused; None if its handler may have it."""
