"""Answers SASL requests on open connections, where they have no meaning: the client is known already.

Those before that go to the connection's authentication. Rules: Kafka's `KafkaApis`.
"""

from __future__ import annotations

from typing import Final

from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.answers import send_answer
from klog.server.network.request import Request

_TOO_LATE: Final = "SaslAuthenticate request received after successful authentication"


def shake_hands(request: Request) -> None:
    """Answers SaslHandshake."""
    send_answer(request, error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=())


def authenticate(request: Request) -> None:
    """Answers SaslAuthenticate."""
    send_answer(
        request,
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message=_TOO_LATE,
        auth_bytes=b"",
        session_lifetime=0,
    )
