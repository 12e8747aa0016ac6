"""OAUTHBEARER: whose token it is, and which tokens are refused, in Kafka's two steps."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from klog.formats.errors import FormatError
from klog.security.authentication.errors import FailedLoginError, RefusedLoginError
from klog.security.authentication.oauth_bearer import InvalidTokenError, OAuthBearerServer
from klog.security.authentication.signed_tokens import KeySet, SignedTokens, parse_key_set
from klog.security.authentication.steps import Login
from klog.security.authentication.unsecured_tokens import UnsecuredTokens

NOW_S = 1_700_000_000
CLAIMS = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 60}
RSA_KEY = rsa.generate_private_key(65537, 2048)
OTHER_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def unsecured(claims: dict[str, Any] | None = None, alg: str = "none", signature: str = "") -> str:
    parts = ({"alg": alg}, CLAIMS if claims is None else claims)
    encoded = (b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join((*encoded, signature))


def jwk(key: Any, **fields: str) -> dict[str, Any]:
    algorithm = (
        jwt.algorithms.RSAAlgorithm if hasattr(key.public_key(), "encrypt") else jwt.algorithms.ECAlgorithm
    )
    return {**json.loads(algorithm.to_jwk(key.public_key())), **fields}


KEYS = KeySet((jwk(RSA_KEY, kid="r"), jwk(EC_KEY, kid="e", alg="ES256")))


def signed(
    claims: dict[str, Any] | None = None, key: Any = RSA_KEY, alg: str = "RS256", kid: str | None = "r"
) -> str:
    headers = {} if kid is None else {"kid": kid}
    return jwt.encode(CLAIMS if claims is None else claims, key, alg, headers)


def signed_tokens(**settings: Any) -> SignedTokens:
    return SignedTokens(lambda: KEYS, lambda: NOW_S * 1000, **settings)


def message(token: str, acting_as: str = "", more: str = "", scheme: str = "Bearer") -> bytes:
    return f"n,{acting_as},\x01auth={scheme} {token}{more}\x01\x01".encode()


# Unsecured tokens.


def unsecured_tokens(**settings: Any) -> UnsecuredTokens:
    return UnsecuredTokens(lambda: NOW_S * 1000, **settings)


def test_an_unsecured_token_names_its_subject_and_its_end() -> None:
    assert unsecured_tokens().validate(unsecured()) == Login("alice", (NOW_S + 60) * 1000)


def test_options_name_other_claims_and_demand_scopes() -> None:
    tokens = unsecured_tokens(principal_claim="name", scope_claim="may", required_scope=("a", "b"))
    claims = {**CLAIMS, "name": "bob", "may": "b a c"}
    assert tokens.validate(unsecured(claims)).user == "bob"
    with pytest.raises(InvalidTokenError) as refused:
        tokens.validate(unsecured({**claims, "may": ["a"]}))
    assert (refused.value.status, refused.value.scope) == ("insufficient_scope", "a b")


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "..",
        unsecured(alg="HS256"),
        unsecured(signature="c2ln"),
        unsecured({**CLAIMS, "exp": NOW_S}),
        unsecured({**CLAIMS, "iat": NOW_S + 1}),
        unsecured({"sub": "alice"}),
        unsecured({**CLAIMS, "exp": "soon"}),
        unsecured({**CLAIMS, "exp": True}),
        unsecured({**CLAIMS, "sub": " "}),
        unsecured({**CLAIMS, "sub": 7}),
        unsecured().replace(".", "-.", 1),
    ],
)
def test_an_unsecured_token_that_is_refused(token: str) -> None:
    with pytest.raises(InvalidTokenError):
        unsecured_tokens().validate(token)


# Signed tokens.


@pytest.mark.parametrize(
    "token",
    [
        signed(),
        signed(kid=None),
        signed(alg="PS512"),
        signed(key=EC_KEY, alg="ES256", kid="e"),
        signed({**CLAIMS, "exp": NOW_S - 29}),
        signed({**CLAIMS, "nbf": NOW_S + 30, "scope": "a"}),
    ],
)
def test_a_token_that_a_key_of_the_set_has_signed(token: str) -> None:
    assert signed_tokens().validate(token).user == "alice"


def test_a_signed_token_ends_by_its_expiry() -> None:
    assert signed_tokens().validate(signed()).expires_ms == (NOW_S + 60) * 1000


def test_audience_issuer_and_subject_are_as_configured() -> None:
    settings = {"audiences": ("kafka",), "issuer": "https://login", "subject_claim": "user"}
    claims = {**CLAIMS, "aud": ["other", "kafka"], "iss": "https://login", "user": "bob"}
    assert signed_tokens(**settings).validate(signed(claims)).user == "bob"
    for wrong in ({"aud": "other"}, {"iss": "https://evil"}, {"user": ""}, {"aud": None}):
        with pytest.raises(InvalidTokenError):
            signed_tokens(**settings).validate(signed({**claims, **wrong}))


public_pem = RSA_KEY.public_key().public_numbers().n.to_bytes(256, "big")


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b.c",
        unsecured(),
        signed(key=OTHER_KEY),
        signed(key=OTHER_KEY, kid=None),
        signed(kid="unknown"),
        signed(key=public_pem, alg="HS256"),
        signed(key=public_pem, alg="HS256", kid=None),
        signed(key=EC_KEY, alg="ES256", kid="r"),
        signed()[:-4] + "AAAA",
        signed({"sub": "alice", "exp": NOW_S + 60}),
        signed({"sub": "alice", "iat": NOW_S}),
        signed({**CLAIMS, "exp": NOW_S - 30}),
        signed({**CLAIMS, "iat": NOW_S + 31}),
        signed({**CLAIMS, "nbf": NOW_S + 31}),
        signed({**CLAIMS, "aud": "somebody"}),
        signed({**CLAIMS, "scope": ["a", "a"]}),
        signed({**CLAIMS, "scope": " "}),
        signed({**CLAIMS, "sub": "x" * 100_000}),
    ],
)
def test_a_signed_token_that_is_refused(token: str) -> None:
    with pytest.raises(InvalidTokenError):
        signed_tokens().validate(token)


def test_a_key_that_is_not_in_the_set_asks_for_new_keys() -> None:
    asked: list[bool] = []
    with pytest.raises(InvalidTokenError):
        signed_tokens(on_unknown_key=lambda: asked.append(True)).validate(signed(kid="new"))
    assert asked == [True]


@given(st.text(alphabet="abc.=-_+/AZ09", max_size=120))
def test_any_text_is_refused(token: str) -> None:
    for tokens in (signed_tokens(), unsecured_tokens()):
        with pytest.raises(InvalidTokenError):
            tokens.validate(token)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"keys": {}}', b'{"keys": [1]}', b"\xff"])
def test_what_is_no_key_set(data: bytes) -> None:
    with pytest.raises(FormatError):
        parse_key_set(data)


# The exchange.


@pytest.mark.parametrize(
    "first",
    [
        message(unsecured()),
        message(unsecured(), scheme="bEARER"),
        message(unsecured(), "a=alice"),
        message(unsecured(), more="\x01traceId=1 2"),
    ],
)
def test_a_good_token_logs_in_with_one_message(first: bytes) -> None:
    reply = OAuthBearerServer(unsecured_tokens()).respond(first)
    assert (reply.message, reply.login) == (b"", Login("alice", (NOW_S + 60) * 1000))


def test_a_bad_token_is_refused_after_the_client_has_taken_note() -> None:
    server = OAuthBearerServer(unsecured_tokens())
    reply = server.respond(message("a.b."))
    assert (reply.message, reply.login) == (b'{"status":"invalid_token"}', None)
    with pytest.raises(RefusedLoginError) as refused:
        server.respond(b"\x01")
    assert refused.value.what == '{"status":"invalid_token"}'


def test_after_a_refusal_no_other_token_is_taken() -> None:
    server = OAuthBearerServer(unsecured_tokens())
    server.respond(message("a.b."))
    with pytest.raises(FailedLoginError):
        server.respond(message(unsecured()))


def test_nobody_acts_for_another_user() -> None:
    with pytest.raises(RefusedLoginError, match=r"authorization id \(bob\).*principal name \(alice\)"):
        OAuthBearerServer(unsecured_tokens()).respond(message(unsecured(), "a=bob"))


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"y,,\x01auth=Bearer x\x01\x01",
        message("x", scheme="Basic"),
        message("x", more="\x01auth2=y"),
        message("tok en"),
        message(unsecured()) + b"more",
    ],
)
def test_a_malformed_message_fails(first: bytes) -> None:
    with pytest.raises(FailedLoginError):
        OAuthBearerServer(unsecured_tokens()).respond(first)


@given(st.binary(max_size=200))
def test_any_bytes_fail(first: bytes) -> None:
    with pytest.raises((FailedLoginError, RefusedLoginError)):
        OAuthBearerServer(unsecured_tokens()).respond(first)
