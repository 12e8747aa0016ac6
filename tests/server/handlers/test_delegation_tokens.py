"""Requests for delegation tokens, where klog's answer depends on no cluster. The rest is compared with Kafka
(`tests/comparison/test_delegation_tokens.py`).
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.security.principal import ANONYMOUS, KafkaPrincipal, TokenPrincipal
from klog.server.handlers.security.delegation_tokens import DelegationTokensHandler
from tests.server.handlers.parts import answer_of, request_of

ALICE = KafkaPrincipal("User", "alice")
APIS = {
    ApiKey.CREATE_DELEGATION_TOKEN: ("create", {"renewers": (), "max_lifetime": -1}),
    ApiKey.RENEW_DELEGATION_TOKEN: ("renew", {"hmac": b"", "renew_period": -1}),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ("expire", {"hmac": b"", "expiry_time_period": -1}),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: ("describe", {"owners": None}),
}
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
DISABLED = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("principal", "tls", "sasl", "error"),
    [
        (ANONYMOUS, False, False, NOT_ALLOWED),
        (ANONYMOUS, True, False, NOT_ALLOWED),
        (ALICE, True, False, DISABLED),
        (ALICE, False, True, DISABLED),
        (ALICE, True, True, DISABLED),
        (TokenPrincipal(*ALICE), True, True, NOT_ALLOWED),
    ],
)
def test_who_may_ask_and_what_a_broker_without_a_secret_answers(
    api: ApiKey, principal: KafkaPrincipal, tls: bool, sasl: bool, error: ErrorCode
) -> None:
    name, values = APIS[api]
    request = request_of(api, 1, **values)
    request.principal = principal
    request.listener = SimpleNamespace(tls=object() if tls else None, authentication=print if sasl else None)
    getattr(DelegationTokensHandler(None, None), name)(request)
    assert answer_of(request).error_code == error


def test_who_logged_in_by_a_token_has_the_rights_of_its_owner() -> None:
    assert TokenPrincipal("User", "alice") == ALICE
    assert {ALICE: 1}[TokenPrincipal("User", "alice")] == 1
