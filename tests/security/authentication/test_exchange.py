"""The SASL exchange follows Kafka's: states, versions, errors, sessions and re-authentication."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.protocol.messages import (
    build,
    decode_response,
    decode_response_header,
    encode_request,
    encode_request_header,
    request_class,
)
from klog.security.authentication.errors import FailedLoginError, RefusedLoginError
from klog.security.authentication.exchange import (
    ApiVersionsAnswer,
    ExchangeSettings,
    MechanismSettings,
    SaslExchange,
)
from klog.security.authentication.steps import AuthenticationStep, Login, Reply, Session
from klog.security.principal import KafkaPrincipal

WALL_MS = 1_700_000_000_000


@dataclass
class Scripted:
    """A mechanism whose messages say what it does."""

    name: str = "PLAIN"
    expires_ms: int | None = None

    def respond(self, message: bytes) -> Reply:
        if message == b"more":
            return Reply(b"go on")
        if message == b"fail":
            raise FailedLoginError("the user does not exist")
        if message == b"refuse":
            raise RefusedLoginError("not today")
        return Reply(b"welcome", Login(message.decode(), self.expires_ms))


@dataclass
class World:
    max_reauth_ms: int = 0
    expires_ms: int | None = None
    timer_ms: int = 5_000
    accepts: bool = True
    names: tuple[str, ...] = ("OAUTHBEARER", "SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
    asked: list[int] = field(default_factory=list)

    def settings(self) -> ExchangeSettings:
        def versions(version: int, _body: object) -> ApiVersionsAnswer:
            self.asked.append(version)
            return ApiVersionsAnswer(b"versions", self.accepts)

        mechanism = MechanismSettings(lambda: Scripted(expires_ms=self.expires_ms), self.max_reauth_ms)
        return ExchangeSettings(
            dict.fromkeys(self.names, mechanism), 1000, versions, lambda: WALL_MS, lambda: self.timer_ms
        )

    def exchange(self) -> SaslExchange:
        return SaslExchange(self.settings)


def request(key: ApiKey, version: int, **values: Any) -> bytearray:
    body = encode_request(build(request_class(key, version), **values))
    return bytearray(encode_request_header(key, version, 77, "client") + body)


def versions(version: int = 0) -> bytearray:
    return bytearray(struct.pack(">hhih", ApiKey.API_VERSIONS, version, 77, -1) + b"\0" * (version >= 3))


def metadata() -> bytearray:
    values = {"topics": None, "allow_auto_topic_creation": False}
    asked = dict.fromkeys(
        ("include_cluster_authorized_operations", "include_topic_authorized_operations"), False
    )
    return request(ApiKey.METADATA, 9, **values, **asked)


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytearray:
    frame = bytearray(encode_request_header(ApiKey.SASL_HANDSHAKE, 1, 77, "client"))
    frame[2:4] = struct.pack(">h", version)
    return frame + struct.pack(">h", len(mechanism)) + mechanism.encode()


def message(content: bytes, version: int = 2) -> bytearray:
    return request(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=content)


def answer(step: AuthenticationStep, key: ApiKey, version: int) -> Any:
    size = struct.unpack_from(">i", step.answer)[0]
    frame = memoryview(step.answer)[4:]
    assert size == len(frame)
    correlation_id, position = decode_response_header(key, version, frame)
    assert correlation_id == 77
    return decode_response(key, version, frame[position:])


def authenticated(
    exchange: SaslExchange, user: str = "alice", version: int = 2
) -> tuple[AuthenticationStep, Any]:
    exchange.take_frame(handshake())
    step = exchange.take_frame(message(user.encode(), version))
    return step, answer(step, ApiKey.SASL_AUTHENTICATE, version)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_login_takes_a_handshake_and_messages(version: int) -> None:
    exchange = World().exchange()
    step = exchange.take_frame(handshake())
    shaken = answer(step, ApiKey.SASL_HANDSHAKE, 1)
    assert (shaken.error_code, step.principal, step.failed) == (0, None, False)
    step = exchange.take_frame(message(b"more", version))
    asked = answer(step, ApiKey.SASL_AUTHENTICATE, version)
    assert (asked.error_code, asked.error_message, asked.auth_bytes) == (0, "", b"go on")
    step = exchange.take_frame(message(b"alice", version))
    assert answer(step, ApiKey.SASL_AUTHENTICATE, version).auth_bytes == b"welcome"
    assert (step.principal, step.session) == (KafkaPrincipal("User", "alice"), None)


def test_mechanisms_are_listed_in_kafka_s_order() -> None:
    exchange = World().exchange()
    listed = answer(exchange.take_frame(handshake()), ApiKey.SASL_HANDSHAKE, 1).mechanisms
    assert listed == ("SCRAM-SHA-512", "PLAIN", "SCRAM-SHA-256", "OAUTHBEARER")


def test_a_mechanism_that_is_not_enabled_fails_with_the_list() -> None:
    step = World().exchange().take_frame(handshake("GSSAPI"))
    refused = answer(step, ApiKey.SASL_HANDSHAKE, 1)
    assert (refused.error_code, len(refused.mechanisms), step.failed) == (33, 4, True)


def test_after_handshake_0_messages_are_bare_frames() -> None:
    exchange = World().exchange()
    assert answer(exchange.take_frame(handshake(version=0)), ApiKey.SASL_HANDSHAKE, 0).error_code == 0
    assert exchange.take_frame(bytearray(b"more")).answer == b"\0\0\0\5go on"
    step = exchange.take_frame(bytearray(b"alice"))
    assert (step.answer, step.principal) == (b"\0\0\0\7welcome", KafkaPrincipal("User", "alice"))


def test_after_handshake_0_failures_are_not_answered() -> None:
    for content in (b"refuse", b"fail"):
        exchange = World().exchange()
        exchange.take_frame(handshake(version=0))
        if content == b"refuse":
            step = exchange.take_frame(bytearray(content))
            assert (step.answer, step.failed) == (b"", True)
        else:
            with pytest.raises(FailedLoginError):
                exchange.take_frame(bytearray(content))


def test_one_apiversions_may_come_before() -> None:
    world = World()
    exchange = world.exchange()
    assert exchange.take_frame(versions(4)).answer == struct.pack(">ii", 12, 77) + b"versions"
    with pytest.raises(KlogError, match="ApiVersions comes again"):
        exchange.take_frame(versions())
    assert world.asked == [4]


def test_an_apiversions_that_is_refused_may_be_repeated() -> None:
    world = World(accepts=False)
    exchange = world.exchange()
    exchange.take_frame(versions(99))
    exchange.take_frame(versions(0))
    assert world.asked == [99, 0]
    assert authenticated(exchange)[1].error_code == 0


def test_another_request_before_the_handshake_is_not_answered() -> None:
    step = World().exchange().take_frame(metadata())
    assert (step.answer, step.failed) == (b"", True)
    assert "Metadata comes before SaslHandshake" in step.why


@pytest.mark.parametrize(
    ("frame", "key", "version", "has_error"),
    [
        (handshake(), ApiKey.SASL_HANDSHAKE, 1, True),
        (metadata(), ApiKey.METADATA, 9, False),
        (request(ApiKey.LIST_GROUPS, 4, states_filter=()), ApiKey.LIST_GROUPS, 4, True),
    ],
)
def test_another_request_after_the_handshake_gets_its_own_error(
    frame: bytearray, key: ApiKey, version: int, has_error: bool
) -> None:
    exchange = World().exchange()
    exchange.take_frame(handshake())
    step = exchange.take_frame(frame)
    assert step.failed
    found = answer(step, key, version)
    assert not has_error or found.error_code == 34


def test_a_request_written_by_hand_gets_no_answer_after_the_handshake() -> None:
    exchange = World().exchange()
    exchange.take_frame(handshake())
    step = exchange.take_frame(bytearray(struct.pack(">hhih", ApiKey.PRODUCE, 3, 1, -1)))
    assert (step.answer, step.failed) == (b"", True)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_refusal_is_passed_on_and_a_failure_is_not(version: int) -> None:
    failed = "Authentication failed during authentication due to invalid credentials"
    for content, said in (
        (b"refuse", "not today"),
        (b"fail", f"{failed} with SASL mechanism PLAIN"),
    ):
        exchange = World().exchange()
        exchange.take_frame(handshake())
        step = exchange.take_frame(message(content, version))
        found = answer(step, ApiKey.SASL_AUTHENTICATE, version)
        assert (found.error_code, found.error_message, found.auth_bytes) == (58, said, b"")
        assert step.failed
        assert step.principal is None


def test_unsupported_versions_and_broken_frames_close_the_connection() -> None:
    for frame in (handshake(version=2), bytearray(b"\x60\x82"), bytearray(), handshake()[:-1]):
        with pytest.raises(KlogError):
            World().exchange().take_frame(frame)
    exchange = World().exchange()
    exchange.take_frame(handshake())
    broken = message(b"alice")
    broken[2:4] = struct.pack(">h", 3)
    with pytest.raises(KlogError):
        exchange.take_frame(broken)


@given(st.lists(st.binary(max_size=80), max_size=4), st.booleans())
def test_any_frames_are_answered_or_end_the_connection(frames: list[bytes], begun: bool) -> None:
    exchange = World().exchange()
    if begun:
        exchange.take_frame(handshake())
    for frame in frames:
        try:
            step = exchange.take_frame(bytearray(frame))
        except KlogError:
            return
        assert step.principal is None
        if step.failed:
            return


# Sessions.


@pytest.mark.parametrize(
    ("max_reauth_ms", "expires_in_ms", "lifetime_ms"),
    [(0, None, None), (60_000, None, 60_000), (0, 30_000, 30_000), (60_000, 30_000, 30_000),
     (60_000, 90_000, 60_000), (60_000, -1, 0), (2**63 - 1, None, 10**15)],
)  # fmt: skip
def test_a_session_lasts_as_long_as_both_limits_allow(
    max_reauth_ms: int, expires_in_ms: int | None, lifetime_ms: int | None
) -> None:
    expires_ms = None if expires_in_ms is None else WALL_MS + expires_in_ms
    step, found = authenticated(World(max_reauth_ms, expires_ms).exchange())
    assert found.session_lifetime.total_seconds() * 1000 == (lifetime_ms or 0)
    assert (step.session and step.session.expires_ms) == (
        None if lifetime_ms is None else 5_000 + lifetime_ms
    )


def test_only_the_last_answer_has_a_lifetime() -> None:
    exchange = World(60_000).exchange()
    exchange.take_frame(handshake())
    asked = answer(exchange.take_frame(message(b"more")), ApiKey.SASL_AUTHENTICATE, 2)
    assert asked.session_lifetime.total_seconds() == 0


def session_of(world: World, user: str = "alice") -> Session:
    session = authenticated(world.exchange(), user)[0].session
    assert session is not None
    return session


def test_a_session_is_renewed_by_the_same_user() -> None:
    world = World(60_000)
    session = session_of(world)
    assert session.renewable_from_ms <= world.timer_ms
    world.timer_ms += 50_000
    step, found = authenticated(session.renew())
    assert (step.principal, found.error_code) == (KafkaPrincipal("User", "alice"), 0)
    assert step.session is not None
    assert (step.session.expires_ms, step.session.renewable_from_ms) == (115_000, 56_000)


def test_another_user_cannot_renew_a_session() -> None:
    step, found = authenticated(session_of(World(60_000)).renew(), "bob")
    assert found.error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    assert (found.error_code, step.failed, step.principal) == (58, True, None)


def test_a_failure_says_that_it_was_a_re_authentication() -> None:
    again = session_of(World(60_000)).renew()
    again.take_frame(handshake())
    failed = answer(again.take_frame(message(b"fail")), ApiKey.SASL_AUTHENTICATE, 2)
    assert failed.error_message.startswith("Authentication failed during re-authentication due to")


def test_another_mechanism_is_answered_and_then_ends_the_connection() -> None:
    again = session_of(World(60_000)).renew()
    step = again.take_frame(handshake("SCRAM-SHA-512"))
    assert (answer(step, ApiKey.SASL_HANDSHAKE, 1).error_code, step.failed) == (0, False)
    step = again.take_frame(message(b"alice"))
    assert (step.answer, step.failed, step.principal) == (b"", True, None)


def test_a_renewal_sees_the_present_configs() -> None:
    world = World(60_000)
    session = session_of(world)
    world.names = ("OAUTHBEARER",)
    assert answer(session.renew().take_frame(handshake()), ApiKey.SASL_HANDSHAKE, 1).error_code == 33
