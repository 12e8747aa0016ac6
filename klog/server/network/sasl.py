"""Reads the SASL configs of a listener: its mechanisms, their users, and how this broker logs in to others.

Rules: `sasl.*` of Kafka's documentation, "Broker Configs"; JAAS entries from
`listener.name.LISTENER.MECHANISM.sasl.jaas.config`, else from the sections `listener.KafkaServer` and
`KafkaServer` of the file that `java.security.auth.login.config` names. What klog does not understand stops
the start. No error shows a password.

klog's own configs, of the broker or of a listener, need no JAAS: `klog.sasl.users.file` (PLAIN: lines of the
form `user=password`), `klog.sasl.username` and `klog.sasl.password` (this broker's login at others).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klog.client import sasl
from klog.client.sasl_oauth import OAUTHBEARER
from klog.config.broker import JAAS_FILE, SASL_PASSWORD, SASL_USERNAME, SASL_USERS_FILE, BrokerConfig
from klog.config.keys import ConfigError, text_of
from klog.formats import java_properties
from klog.formats.errors import FormatError, KlogError
from klog.security.authentication.jaas import JaasEntry, parse_jaas, parse_jaas_file
from klog.security.authentication.plain import PLAIN
from klog.security.authentication.scram_credentials import HASHES
from klog.server.network.sasl_tokens import TokenConfig, login_by_token, read_tokens
from klog.storage.files.files import read_small

HIDDEN: Final = "[hidden]"
MECHANISMS: Final = (PLAIN, *HASHES, OAUTHBEARER)
_JAAS: Final = "sasl.jaas.config"
_ENABLED: Final = "sasl.enabled.mechanisms"
_BETWEEN: Final = "sasl.mechanism.inter.broker.protocol"
_HANDLER: Final = "sasl.server.callback.handler.class"
_SECURITY: Final = "org.apache.kafka.common.security"
_MODULES: Final = {
    PLAIN: f"{_SECURITY}.plain.PlainLoginModule",
    **dict.fromkeys(HASHES, f"{_SECURITY}.scram.ScramLoginModule"),
    OAUTHBEARER: f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule",
}
_HANDLERS: Final = {
    PLAIN: (f"{_SECURITY}.plain.internals.PlainServerCallbackHandler",),
    **dict.fromkeys(HASHES, (f"{_SECURITY}.scram.internals.ScramServerCallbackHandler",)),
}
_USER: Final = "user_"
_LOGIN_OPTIONS: Final = ("username", "password")


@dataclass(frozen=True, slots=True)
class MechanismConfig:
    """A mechanism of a listener. `passwords` are those of PLAIN, `options` those of the JAAS entry."""

    name: str
    max_reauth_ms: int
    options: Mapping[str, str] = field(repr=False)
    passwords: Mapping[str, str] = field(repr=False)
    tokens: TokenConfig | None = None


class SaslConfig(NamedTuple):
    """The SASL configs of a listener."""

    mechanisms: Mapping[str, MechanismConfig]
    max_receive_bytes: int


def read_sasl(config: BrokerConfig, listener: str) -> SaslConfig:
    """The SASL configs of a listener. Raises `ConfigError`."""
    enabled = config.for_listener(listener, _ENABLED)
    names = enabled if isinstance(enabled, tuple) else ()
    if not names:
        raise ConfigError(_ENABLED, "", f"listener {listener} needs a mechanism", cure=_choice())
    mechanisms = {name: _mechanism(config, listener, name) for name in names}
    size = config.for_listener(listener, "sasl.server.max.receive.size")
    return SaslConfig(mechanisms, size if isinstance(size, int) else 0)


def login_to_brokers(config: BrokerConfig, listener: str, found: SaslConfig) -> sasl.Login:
    """How this broker logs in at the listener of that name of other brokers. Raises `ConfigError`."""
    name = text_of(config.for_listener(listener, _BETWEEN)) or ""
    if name not in found.mechanisms:
        raise ConfigError(
            _BETWEEN,
            name,
            f"the listener between brokers, {listener}, does not enable it: {', '.join(found.mechanisms)}",
            cure=f"set it to one of {_ENABLED}",
        )
    options = found.mechanisms[name].options
    if name == OAUTHBEARER:
        return login_by_token(config, listener, options)
    user = options.get("username") or _own(config, listener, SASL_USERNAME)
    password = options.get("password") or _own(config, listener, SASL_PASSWORD)
    if user is None or password is None:
        raise ConfigError(
            _name(listener, name, _JAAS),
            HIDDEN,
            "the broker does not know how to log in at other brokers",
            cure=f"add username and password to it, or set {SASL_USERNAME} and {SASL_PASSWORD}",
        )
    return sasl.Sasl(name, user, password)


def _choice() -> str:
    return f"set {_ENABLED} to some of {', '.join(MECHANISMS)}"


def _name(listener: str, mechanism: str, config: str) -> str:
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.{config}"


def _own(config: BrokerConfig, listener: str, name: str) -> str | None:
    """One of klog's own configs, the listener's before that of the broker."""
    found = config.own_text(f"listener.name.{listener.lower()}.{name}")
    return config.own_text(name) if found is None else found


def _mechanism(config: BrokerConfig, listener: str, name: str) -> MechanismConfig:
    if name not in MECHANISMS:
        raise ConfigError(_ENABLED, name, f"klog does not serve it (listener {listener})", cure=_choice())
    handler = _handler(config, listener, name)
    entry = _entry(config, listener, name)
    max_reauth = config.for_mechanism(listener, name, "connections.max.reauth.ms")
    options = {} if entry is None else entry.options
    passwords = _passwords(config, listener, entry) if name == PLAIN else {}
    tokens = read_tokens(config, listener, handler, options) if name == OAUTHBEARER else None
    return MechanismConfig(name, max_reauth if isinstance(max_reauth, int) else 0, options, passwords, tokens)


def _handler(config: BrokerConfig, listener: str, mechanism: str) -> str | None:
    """The callback handler that is named, if klog knows what it does. Raises `ConfigError`."""
    name = _name(listener, mechanism, _HANDLER)
    given = config.own_text(name)
    if given and mechanism in _HANDLERS and given not in _HANDLERS[mechanism]:
        raise ConfigError(name, given, "klog cannot load Java classes", cure="remove it")
    return given or None


def _entry(config: BrokerConfig, listener: str, mechanism: str) -> JaasEntry | None:
    """The JAAS entry of a mechanism, None if there is none and none is needed. Raises `ConfigError`."""
    name = _name(listener, mechanism, _JAAS)
    text = config.own_text(name)
    if text is not None:
        try:
            entry = parse_jaas(text)
        except FormatError as error:
            raise ConfigError(name, HIDDEN, error.what, cure=error.cure) from None
        return _checked(name, mechanism, entry)
    path = config.own_text(JAAS_FILE)
    if path:
        for entry in _section(path, listener):
            if entry.module == _MODULES[mechanism]:
                return _checked(JAAS_FILE, mechanism, entry)
    return None


def jaas_sections(path: str) -> Mapping[str, list[JaasEntry]]:
    """The entries of a JAAS file by section. Raises `ConfigError`."""
    try:
        return parse_jaas_file(read_small(path).decode("utf-8", "replace"))
    except KlogError as error:
        raise ConfigError(JAAS_FILE, path, error.what, cure=error.cure) from None


def _section(path: str, listener: str) -> list[JaasEntry]:
    """The entries of the JAAS file for a listener. Raises `ConfigError`."""
    sections = jaas_sections(path)
    return sections.get(f"{listener.lower()}.KafkaServer") or sections.get("KafkaServer", [])


def _checked(name: str, mechanism: str, entry: JaasEntry) -> JaasEntry:
    """The entry, if klog understands all of it. Raises `ConfigError`."""
    if entry.module != _MODULES[mechanism]:
        why = f"{entry.module} is no login module of {mechanism} that klog knows"
        raise ConfigError(name, HIDDEN, why, cure=_MODULES[mechanism])
    if mechanism != OAUTHBEARER:
        options = set(entry.options).difference(_LOGIN_OPTIONS)
        unknown = {each for each in options if mechanism != PLAIN or not each.startswith(_USER)}
        if unknown:
            why = f"klog does not know these options of {entry.module}: {', '.join(sorted(unknown))}"
            raise ConfigError(name, HIDDEN, why)
    return entry


def _passwords(config: BrokerConfig, listener: str, entry: JaasEntry | None) -> Mapping[str, str]:
    """The users of PLAIN. Raises `ConfigError` if nobody could log in."""
    options = {} if entry is None else entry.options
    found = {name.removeprefix(_USER): each for name, each in options.items() if name.startswith(_USER)}
    path = _own(config, listener, SASL_USERS_FILE)
    if path:
        found = {**_users_of_file(path), **found}
    elif entry is None:
        raise ConfigError(
            _name(listener, PLAIN, _JAAS),
            "null",
            f"PLAIN of listener {listener} has no users",
            cure=f'set it to {_MODULES[PLAIN]} required user_NAME="PASSWORD"; or set {SASL_USERS_FILE}',
        )
    return found


def _users_of_file(path: str) -> dict[str, str]:
    try:
        found = java_properties.config_entries(read_small(path))
    except KlogError as error:
        raise ConfigError(SASL_USERS_FILE, path, error.what, cure="lines of the form user=password") from None
    if without := sorted(user for user, password in found.items() if not user or not password):
        raise ConfigError(SASL_USERS_FILE, path, f"these users have no password: {', '.join(without)}")
    return found
