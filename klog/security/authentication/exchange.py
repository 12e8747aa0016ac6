"""The SASL exchange of one connection: which mechanism, then its messages, in Kafka's frames or bare.

Rules: Kafka's `SaslServerAuthenticator`; KIP-43 (SaslHandshake), KIP-152 (SaslAuthenticate), KIP-368
(sessions and re-authentication). After SaslHandshake 0 the mechanism's messages are bare frames. A
mechanism's own refusal reaches the client word for word, any other failure as one general text.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from klog.protocol.apis import ApiKey, api_name
from klog.protocol.entity_fields import Value, entity_fields
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import UnsupportedApiError
from klog.protocol.messages import (
    RequestHeader,
    build,
    decode_request,
    decode_request_header,
    encode_response,
    encode_response_header,
    response_class,
)
from klog.protocol.primitives import Buffer
from klog.security.authentication.errors import FailedLoginError, RefusedLoginError
from klog.security.authentication.steps import AuthenticationStep, Login, Mechanism, Reply, Session
from klog.security.principal import USER, KafkaPrincipal, TokenPrincipal

_FRAME: Final = struct.Struct(">i")
_RENEWAL_PAUSE_MS: Final = 1_000
_LONGEST_MS: Final = 10**15  # thirty thousand years: a token may claim more, and no field has room for it
# The order of Java's hash set in which Kafka names mechanisms; those of one number stay in order.
_ORDER: Final = {"PLAIN": 0, "SCRAM-SHA-512": 0, "SCRAM-SHA-256": 6, "OAUTHBEARER": 8}


class MechanismSettings(NamedTuple):
    """A mechanism of a listener. `begin` makes the server's side of one login. A login must be renewed after
    `max_reauth_ms`, if that is not 0.
    """

    begin: Callable[[], Mechanism]
    max_reauth_ms: int = 0


class ApiVersionsAnswer(NamedTuple):
    """The body of an answer to ApiVersions; `accepted` unless it only says what is wrong."""

    body: bytes
    accepted: bool


@dataclass(frozen=True, slots=True)
class ExchangeSettings:
    """What the exchanges of a listener share. `api_versions` answers the body of an ApiVersions request of a
    version. `clock_ms` is the wall clock, by which credentials expire, `timer_ms` that of timers.
    """

    mechanisms: Mapping[str, MechanismSettings]
    max_receive_bytes: int
    api_versions: Callable[[int, Buffer], ApiVersionsAnswer]
    clock_ms: Callable[[], int]
    timer_ms: Callable[[], int]

    @property
    def names(self) -> list[str]:
        """The enabled mechanisms as Kafka lists them."""
        return sorted(self.mechanisms, key=lambda name: _ORDER.get(name, len(_ORDER)))


class Previous(NamedTuple):
    """The login that a re-authentication renews, and when that has begun."""

    mechanism: str
    principal: KafkaPrincipal
    begun_ms: int


class _State(Enum):
    VERSIONS_OR_HANDSHAKE = auto()
    HANDSHAKE = auto()
    MESSAGES = auto()
    OTHER_MECHANISM = auto()


class SaslExchange:
    """One authentication, the first of a connection or a `previous` one's renewal.

    It is called once for each frame, by one thread. `settings` gives those that are in force now.
    """

    def __init__(self, settings: Callable[[], ExchangeSettings], previous: Previous | None = None) -> None:
        self._present = settings
        self._settings = settings()
        self._previous = previous
        self._state = _State.VERSIONS_OR_HANDSHAKE if previous is None else _State.HANDSHAKE
        self._name = ""
        self._mechanism: Mechanism | None = None
        self._framed = False
        self.max_frame_bytes = self._settings.max_receive_bytes

    def take_frame(self, frame: bytearray) -> AuthenticationStep:
        """Takes the next frame. Raises KlogError for one that closes the connection at once."""
        if self._state is _State.OTHER_MECHANISM:
            return AuthenticationStep(failed=True, why="the mechanism changed in a re-authentication")
        if self._mechanism is None:
            return self._negotiate(frame)
        if self._framed:
            return self._framed_message(self._mechanism, frame)
        return self._bare_message(self._mechanism, frame)

    # Before the mechanism is known.

    def _negotiate(self, frame: bytearray) -> AuthenticationStep:
        header = decode_request_header(frame)
        body = memoryview(frame)[header.body_position_bytes :]
        if header.api_key == ApiKey.API_VERSIONS:
            return self._answer_versions(header, body)
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            return self._shake_hands(header, decode_request(*header[:2], body).mechanism)
        why = f"{api_name(header.api_key)} comes before SaslHandshake (client: security.protocol=SASL_...)"
        return AuthenticationStep(failed=True, why=why)

    def _answer_versions(self, header: RequestHeader, body: Buffer) -> AuthenticationStep:
        if self._state is not _State.VERSIONS_OR_HANDSHAKE:
            raise UnsupportedApiError("ApiVersions comes again before SaslHandshake")
        answer = self._settings.api_versions(header.api_version, body)
        if answer.accepted:
            self._state = _State.HANDSHAKE
        return AuthenticationStep(_framed(header.correlation_id, b"", answer.body))

    def _shake_hands(self, header: RequestHeader, name: str) -> AuthenticationStep:
        settings = self._settings.mechanisms.get(name)
        error = ErrorCode.NONE if settings is not None else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        answer = _answer(header, error_code=error, mechanisms=self._settings.names)
        if settings is None:
            return AuthenticationStep(answer, failed=True, why="it asks for a mechanism that is not enabled")
        self._framed = header.api_version >= 1
        if self._previous is not None and self._previous.mechanism != name:
            self._state = _State.OTHER_MECHANISM
        else:
            self._state = _State.MESSAGES
            self._name, self._mechanism = name, settings.begin()
        return AuthenticationStep(answer)

    # Messages of the mechanism.

    def _bare_message(self, mechanism: Mechanism, frame: bytearray) -> AuthenticationStep:
        """After SaslHandshake 0. Failures are not answered; only a mechanism's own refusals are delayed."""
        try:
            reply = mechanism.respond(bytes(frame))
            step = self._completed(reply)[0]
        except RefusedLoginError as error:
            return AuthenticationStep(failed=True, why=error.what)
        return step._replace(answer=_FRAME.pack(len(reply.message)) + reply.message)

    def _framed_message(self, mechanism: Mechanism, frame: bytearray) -> AuthenticationStep:
        header = decode_request_header(frame)
        if header.api_key != ApiKey.SASL_AUTHENTICATE:
            why = f"{api_name(header.api_key)} comes before the login is complete"
            return AuthenticationStep(_illegal_state(header), failed=True, why=why)
        body = memoryview(frame)[header.body_position_bytes :]
        message = bytes(decode_request(*header[:2], body).auth_bytes)
        try:
            reply = mechanism.respond(message)
            step, lifetime_ms = self._completed(reply)
        except RefusedLoginError as error:
            return _failed(header, error.what, error.what)
        except FailedLoginError as error:
            action = "authentication" if self._previous is None else "re-authentication"
            said = (
                f"Authentication failed during {action} due to invalid credentials with SASL mechanism"
                f" {self._name}"
            )
            return _failed(header, said, f"{said}: {error.what}")
        answer = _answer(
            header,
            error_code=ErrorCode.NONE,
            error_message="",
            auth_bytes=reply.message,
            session_lifetime=lifetime_ms,
        )
        return step._replace(answer=answer)

    def _completed(self, reply: Reply) -> tuple[AuthenticationStep, int]:
        """The step after a mechanism's reply, and the lifetime of the session. Raises RefusedLoginError."""
        if reply.login is None:
            return AuthenticationStep(), 0
        kind = TokenPrincipal if reply.login.by_token else KafkaPrincipal
        principal = kind(USER, reply.login.user)
        if self._previous is not None and self._previous.principal != principal:
            old, new = (".".join(each) for each in (self._previous.principal, principal))
            raise RefusedLoginError(f"Cannot change principals during re-authentication from {old}: {new}")
        lifetime_ms = self._lifetime_ms(reply.login)
        if lifetime_ms is None:
            return AuthenticationStep(principal=principal), 0
        session = self._session(principal, lifetime_ms)
        return AuthenticationStep(principal=principal, session=session), lifetime_ms

    def _lifetime_ms(self, login: Login) -> int | None:
        """For how long the login is valid; None if it does not end."""
        max_reauth_ms = self._settings.mechanisms[self._name].max_reauth_ms
        limits_ms = [max_reauth_ms] if max_reauth_ms > 0 else []
        if login.expires_ms is not None:
            limits_ms.append(login.expires_ms - self._settings.clock_ms())
        return max(0, min(*limits_ms, _LONGEST_MS)) if limits_ms else None

    def _session(self, principal: KafkaPrincipal, lifetime_ms: int) -> Session:
        timer_ms, settings, name = self._settings.timer_ms, self._present, self._name

        def renew() -> SaslExchange:
            return SaslExchange(settings, Previous(name, principal, timer_ms()))

        now_ms = timer_ms()
        renewable_ms = now_ms if self._previous is None else self._previous.begun_ms + _RENEWAL_PAUSE_MS
        return Session(now_ms + lifetime_ms, renewable_ms, renew)


def _failed(header: RequestHeader, said: str, why: str) -> AuthenticationStep:
    answer = _answer(
        header,
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
        error_message=said,
        auth_bytes=b"",
        session_lifetime=0,
    )
    return AuthenticationStep(answer, failed=True, why=why)


def _answer(header: RequestHeader, **values: Value) -> bytes:
    entity = build(response_class(header.api_key, header.api_version), **values)
    head = encode_response_header(header.api_key, header.api_version, header.correlation_id)[_FRAME.size :]
    return _framed(header.correlation_id, head, encode_response(entity))


def _framed(correlation_id: int, tags: bytes, body: bytes) -> bytes:
    return _FRAME.pack(_FRAME.size + len(tags) + len(body)) + _FRAME.pack(correlation_id) + tags + body


def _illegal_state(header: RequestHeader) -> bytes:
    """The API's own answer with ILLEGAL_SASL_STATE and nothing else; empty if it has no such error, or is
    written by hand.
    """
    try:
        fields = entity_fields(response_class(header.api_key, header.api_version))
    except UnsupportedApiError:
        return b""
    values = {field.name: field.default for field in fields}
    if "error_code" in values:
        values["error_code"] = ErrorCode.ILLEGAL_SASL_STATE
    return _answer(header, **values)
