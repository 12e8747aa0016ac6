"""Makes the SASL exchanges of a broker's connections, and its own logins at other brokers."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from klog.protocol.primitives import Buffer
from klog.security.authentication.delegation_tokens import KnownTokens, TokenLogin
from klog.security.authentication.exchange import (
    ApiVersionsAnswer,
    ExchangeSettings,
    MechanismSettings,
    SaslExchange,
)
from klog.security.authentication.oauth_bearer import OAuthBearerServer, TokenValidator
from klog.security.authentication.plain import PLAIN, Plain
from klog.security.authentication.scram import Scram
from klog.security.authentication.scram_credentials import ScramCredentials
from klog.security.authentication.signed_tokens import KeySet, SignedTokens
from klog.security.authentication.steps import Authentication, Mechanism
from klog.security.authentication.unsecured_tokens import UnsecuredTokens
from klog.server.network.jwks import RefreshedKeys, read_keys
from klog.server.network.sasl import MechanismConfig, SaslConfig
from klog.server.network.sasl_tokens import TokenConfig

KeySource = tuple[str, int, int, int, ssl.SSLContext | None]
"""A URL of keys, when to read it again, and how to connect to it."""
_NONCE_BYTES: Final = 17  # as many bits as Kafka's, and a few more


@dataclass(eq=False, slots=True)
class Logins:
    """Who may log in at the SASL listeners of a broker.

    `present` gives the SASL configs of a listener, as they are when a client begins its login. `tokens` are
    the delegation tokens that are known, once the metadata is read; None without a secret for them.
    """

    present: Callable[[str], SaslConfig]
    api_versions: Callable[[int, Buffer], ApiVersionsAnswer]
    clock_ms: Callable[[], int]
    timer_ms: Callable[[], int]
    credentials: ScramCredentials = field(default_factory=ScramCredentials)
    tokens: KnownTokens | None = None
    _settings: dict[str, tuple[SaslConfig, ExchangeSettings]] = field(default_factory=dict)
    _keys: dict[KeySource, RefreshedKeys] = field(default_factory=dict)
    _factories: dict[str, Callable[[], Authentication]] = field(default_factory=dict)

    def of_listener(self, listener: str) -> Callable[[], Authentication]:
        """What makes the exchanges of a listener: the same object whenever it is asked for."""
        return self._factories.setdefault(
            listener, partial(SaslExchange, partial(self._exchange_settings, listener))
        )

    def _exchange_settings(self, listener: str) -> ExchangeSettings:
        config = self.present(listener)
        made = self._settings.get(listener)
        if made is None or made[0] is not config:
            made = config, self._made(config)
            self._settings[listener] = made
        return made[1]

    def _made(self, config: SaslConfig) -> ExchangeSettings:
        mechanisms: Mapping[str, MechanismSettings] = {
            name: MechanismSettings(self._begin(each), each.max_reauth_ms)
            for name, each in config.mechanisms.items()
        }
        return ExchangeSettings(
            mechanisms, config.max_receive_bytes, self.api_versions, self.clock_ms, self.timer_ms
        )

    def prepare(self, listeners: Iterable[str]) -> None:
        """Gets ready for the clients of these SASL listeners; waits for keys of providers."""
        for listener in listeners:
            self._exchange_settings(listener)
        for keys in self._keys.values():
            keys.await_first()

    def stop(self) -> None:
        """Reads no keys of providers any more."""
        for keys in self._keys.values():
            keys.stop()

    def _begin(self, config: MechanismConfig) -> Callable[[], Mechanism]:
        if config.tokens is not None:
            validator = self._validator(config.tokens)
            return lambda: OAuthBearerServer(validator)
        if config.name == PLAIN:
            return lambda: Plain(config.passwords)
        return lambda: Scram(
            config.name,
            partial(self.credentials.find, config.name),
            partial(secrets.token_hex, _NONCE_BYTES),
            partial(self._token_login, config.name),
        )

    def _token_login(self, mechanism: str, token_id: str) -> TokenLogin | None:
        return None if self.tokens is None else self.tokens.login(mechanism, token_id)

    def _validator(self, tokens: TokenConfig) -> TokenValidator:
        if tokens.jwks_url is None:
            options = tokens.options
            return UnsecuredTokens(
                self.clock_ms,
                int(options.get("unsecuredValidatorAllowableClockSkewMs", "0")),
                options.get("unsecuredValidatorPrincipalClaimName", "sub"),
                options.get("unsecuredValidatorScopeClaimName", "scope"),
                options.get("unsecuredValidatorRequiredScope", "").split(),
            )
        keys = self._keys_at(tokens, tokens.jwks_url)
        return SignedTokens(
            keys,
            self.clock_ms,
            keys.expedite if isinstance(keys, RefreshedKeys) else lambda: None,
            tokens.audiences,
            tokens.issuer,
            tokens.clock_skew_s,
            tokens.subject_claim,
            tokens.scope_claim,
        )

    def _keys_at(self, tokens: TokenConfig, url: str) -> Callable[[], KeySet]:
        if url.startswith("file:"):
            keys = read_keys(url)
            return lambda: keys
        source = url, tokens.refresh_ms, tokens.retry_ms, tokens.most_retry_ms, tokens.tls
        if source not in self._keys:
            self._keys[source] = RefreshedKeys(*source[:4], partial(read_keys, tls=tokens.tls))
        return self._keys[source]
