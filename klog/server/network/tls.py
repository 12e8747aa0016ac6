"""Reads the TLS configs of a listener, makes the contexts for its connections, and checks replacements.

Rules: `ssl.*` of Kafka's documentation, "Broker Configs"; KIP-651 (PEM: a key and a certificate chain in one
file, or each in a config of its own); KIP-226 and KIP-978 (a listener takes another certificate while the
broker runs, for the same holder unless `ssl.allow.dn.changes`, `ssl.allow.san.changes`).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klog.config.broker import BrokerConfig
from klog.config.cipher_suites import limit_suites
from klog.config.key_stores import key_store_pem, trust_store_pem
from klog.config.keys import ConfigError, Value, text_of
from klog.config.pem import Pem
from klog.formats.errors import FormatError, UsageError
from klog.security.authentication.principal_rules import PrincipalRules, parse_rules
from klog.server.network.certificates import Holder, holder_of

_HIDDEN: Final = "[hidden]"
# Ascending. Kafka's JVMs do not use the older ones either, unless java.security allows them.
_TLS_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_TLS_TOO_OLD: Final = ("TLSv1", "TLSv1.1")
# Those that Java makes a context for. Which versions it speaks is `ssl.enabled.protocols`.
_PROTOCOLS: Final = ("TLS", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3", "SSL", "SSLv3")
_ENABLED: Final = "ssl.enabled.protocols"
_JAVA_STORES: Final = ("JKS", "PKCS12")
_VERIFY: Final = {"required": ssl.CERT_REQUIRED, "requested": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}


@dataclass(frozen=True, slots=True)
class JavaStore:
    """A key store or a trust store in PKCS12 or JKS. A trust store may be PEM, whatever its type says."""

    config: str
    path: str
    password: str | None = field(repr=False)
    key_password: str | None = field(repr=False)
    has_key: bool

    @property
    def shown(self) -> str:
        """What an error message may show."""
        return self.path

    def read(self) -> str:
        """Its content as PEM. Raises OSError, FormatError, UsageError."""
        with open(self.path, "rb") as file:
            data = file.read()
        if self.has_key:
            return key_store_pem(data, self.password, self.key_password)
        if b"-----BEGIN " in data:
            return data.decode("ascii", "replace")
        return trust_store_pem(data, self.password)

    @contextmanager
    def as_file(self) -> Iterator[str]:
        """A file with its content in PEM, which only this user may read. Raises as `read` does."""
        with Pem(self.config, None, self.read()).as_file() as path:
            yield path


class TlsSettings(NamedTuple):
    """The TLS configs of a listener."""

    keystore: Pem | JavaStore
    key_password: str | None
    truststore: Pem | JavaStore | None
    client_auth: str
    oldest: ssl.TLSVersion
    newest: ssl.TLSVersion
    suites: tuple[str, ...]
    checks_names: bool
    allow_dn_changes: bool
    allow_san_changes: bool


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS of a listener, ready for use.

    `context` serves connections. `to_brokers` connects to the listeners of the same name of other brokers.
    `stamp` holds times and sizes of the files, by which a change is seen. `holder` is of the certificate.
    """

    settings: TlsSettings
    stamp: tuple[tuple[int, int], ...]
    holder: Holder
    context: ssl.SSLContext
    to_brokers: ssl.SSLContext


def read_tls(config: BrokerConfig, listener: str, present: Tls | None = None, *, sasl: bool = False) -> Tls:
    """TLS for a listener. If neither configs nor files have changed, it is `present` itself. With `sasl`
    clients authenticate by SASL, and only the listener's own `ssl.client.auth` counts, as in Kafka.

    Raises `ConfigError`.
    """
    settings = _settings(config, listener)
    if sasl and config.own_text(f"listener.name.{listener.lower()}.ssl.client.auth") is None:
        settings = settings._replace(client_auth="none")
    try:
        stamp = _stamp(settings)
        if present is not None and present.settings == settings and present.stamp == stamp:
            return present
        holder = holder_of(settings.keystore.read())
        return Tls(settings, stamp, holder, _context(settings), _to_brokers(settings))
    except (OSError, ValueError, FormatError, UsageError) as error:
        # What OpenSSL refuses is an OSError, too. What cannot be given to OpenSSL, such as a very long
        # password, is a ValueError.
        keystore = settings.keystore
        raise ConfigError(keystore.config, keystore.shown, f"cannot be used: {error}") from error


def read_principal_rules(config: BrokerConfig, listener: str) -> PrincipalRules:
    """How the clients of a listener are named. Raises `ConfigError`."""
    key = "ssl.principal.mapping.rules"
    text = text_of(config.for_listener(listener, key)) or ""
    try:
        return parse_rules(text)
    except FormatError as error:
        raise ConfigError(key, text, error.what, cure=error.cure) from error


def check_between_brokers(tls: Tls) -> None:
    """Makes a handshake of a broker with itself, without a check of host names: if it fails, no broker of a
    cluster with these configs can connect to another. Raises `ConfigError`.
    """
    settings = tls.settings
    try:
        client = _to_brokers(settings._replace(checks_names=False))
        _shake_hands(client, tls.context)
    except OSError as error:
        truststore = settings.truststore
        raise ConfigError(
            "ssl.truststore.location" if truststore is None else truststore.config,
            str(None if truststore is None else truststore.shown),
            f"brokers could not connect to each other: {error}",
            cure="name a file with the certificate of the authority that has signed those of the brokers",
        ) from error


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    waiting = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while waiting:
        # In each turn one side has something new to read, or fails.
        waiting = [side for side in waiting if _wants_more(side)]


def _wants_more(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return True
    return False


def check_replacement(listener: str, old: Tls, new: Tls) -> None:
    """Raises `UsageError` if a running listener must not go on with `new`."""
    failed = f"Validation of dynamic config update of listener {listener} failed:"
    if old.settings.truststore is None and new.settings.truststore is not None:
        raise UsageError(
            f"{failed} Cannot add SSL truststore to an existing listener for which no truststore was"
            " configured."
        )
    if not new.settings.allow_dn_changes and old.holder.subject != new.holder.subject:
        raise UsageError(f"{failed} Keystore DistinguishedName does not match")
    if not new.settings.allow_san_changes and not new.holder.names >= old.holder.names:
        raise UsageError(f"{failed} Keystore SubjectAltNames do not match")


def _settings(config: BrokerConfig, listener: str) -> TlsSettings:
    def text(key: str) -> str | None:
        return text_of(config.for_listener(listener, key)) or None

    protocol = text("ssl.protocol")
    if protocol not in (None, *_PROTOCOLS):
        raise ConfigError("ssl.protocol", str(protocol), f"it is one of {', '.join(_PROTOCOLS)}")
    oldest, newest = tls_versions(names_in(config.for_listener(listener, _ENABLED)), _ENABLED)
    return TlsSettings(
        _keystore(text, listener),
        text("ssl.key.password"),
        _truststore(text),
        text("ssl.client.auth") or "none",
        oldest,
        newest,
        _suites(names_in(config.for_listener(listener, "ssl.cipher.suites")), oldest, newest),
        text("ssl.endpoint.identification.algorithm") is not None,
        config.flag("ssl.allow.dn.changes"),
        config.flag("ssl.allow.san.changes"),
    )


def names_in(value: Value) -> tuple[str, ...]:
    """The names in a config that is a list."""
    return value if isinstance(value, tuple) else ()


def _suites(names: tuple[str, ...], oldest: ssl.TLSVersion, newest: ssl.TLSVersion) -> tuple[str, ...]:
    """The suites that a listener may use, none for all of OpenSSL's. Raises `ConfigError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = oldest, newest
    try:
        _limit_suites(context, names)
    except UsageError as error:
        raise ConfigError("ssl.cipher.suites", ",".join(names), error.what, cure=error.cure) from error
    return names


def _limit_suites(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    if names:
        limit_suites(context, names)


def tls_versions(names: tuple[str, ...], key: str) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    """The oldest and the newest version that the config `key` names, all if it names none; OpenSSL allows
    those between them, too. Raises `ConfigError`.
    """
    unknown = [name for name in names if name not in (*_TLS_VERSIONS, *_TLS_TOO_OLD)]
    found = [version for name, version in _TLS_VERSIONS.items() if name in names or not names]
    if unknown or not found:
        raise ConfigError(key, ",".join(names), f"one of {', '.join(_TLS_VERSIONS)} must be enabled")
    return found[0], found[-1]


def _keystore(text: Callable[[str], str | None], listener: str) -> Pem | JavaStore:
    location = text("ssl.keystore.location")
    key, chain = text("ssl.keystore.key"), text("ssl.keystore.certificate.chain")
    kind = (text("ssl.keystore.type") or "JKS").upper()
    if location is key is chain is None or kind not in (*_JAVA_STORES, "PEM"):
        raise ConfigError(
            "ssl.keystore.location",
            str(location),
            f"listener {listener} needs a key and a certificate chain",
            cure="set ssl.keystore.location, and ssl.keystore.type to PEM, PKCS12 or JKS",
        )
    if kind != "PEM":
        password = text("ssl.keystore.password")
        if location is None or password is None:
            why = f"a key store of type {kind} needs a location and a password"
            raise ConfigError(
                "ssl.keystore.location", str(location), why, cure="or set ssl.keystore.type=PEM"
            )
        return JavaStore("ssl.keystore.location", location, password, text("ssl.key.password"), has_key=True)
    if text("ssl.keystore.password") is not None:
        why = "a PEM store has no password, only its key has one: ssl.key.password"
        raise ConfigError("ssl.keystore.password", _HIDDEN, why)
    if key is chain is None:
        return Pem("ssl.keystore.location", location)
    if key is None or chain is None:
        why = "ssl.keystore.key and ssl.keystore.certificate.chain belong together"
        raise ConfigError("ssl.keystore.key", _HIDDEN, why)
    if location is not None:
        why = "ssl.keystore.location names another key store"
        raise ConfigError("ssl.keystore.key", _HIDDEN, why, cure="set only one of them")
    return Pem("ssl.keystore.key", None, f"{chain}\n{key}")


def _truststore(text: Callable[[str], str | None]) -> Pem | JavaStore | None:
    key = "ssl.truststore.location"
    location, certificates = text(key), text("ssl.truststore.certificates")
    if certificates is None:
        if location is None or text("ssl.truststore.type") == "PEM":
            return None if location is None else Pem(key, location)
        return JavaStore(key, location, text("ssl.truststore.password"), None, has_key=False)
    if location is not None or text("ssl.truststore.type") != "PEM":
        why = "they need ssl.truststore.type=PEM and no ssl.truststore.location"
        raise ConfigError("ssl.truststore.certificates", _HIDDEN, why)
    return Pem("ssl.truststore.certificates", None, certificates)


def _stamp(settings: TlsSettings) -> tuple[tuple[int, int], ...]:
    stores = (settings.keystore, settings.truststore)
    found = [os.stat(each.path) for each in stores if each is not None and each.path is not None]
    return tuple((each.st_mtime_ns, each.st_size) for each in found)


def _context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, settings)
    if settings.truststore is not None:
        with settings.truststore.as_file() as path:
            context.load_verify_locations(path)
    context.verify_mode = _VERIFY[settings.client_auth]
    # Handshakes are the dearest thing that a client can ask for. Kafka refuses another one, too.
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def _to_brokers(settings: TlsSettings) -> ssl.SSLContext:
    """The context has the listener's own certificate: other brokers may ask for one."""
    if settings.truststore is None:
        context = ssl.create_default_context()
    else:
        with settings.truststore.as_file() as path:
            context = ssl.create_default_context(cafile=path)
    context.check_hostname = settings.checks_names
    _load(context, settings)
    return context


def _load(context: ssl.SSLContext, settings: TlsSettings) -> None:
    context.minimum_version, context.maximum_version = settings.oldest, settings.newest
    _limit_suites(context, settings.suites)
    with settings.keystore.as_file() as path:
        # Without a password OpenSSL would ask for that of an encrypted key on the terminal.
        context.load_cert_chain(path, password=settings.key_password or "")
