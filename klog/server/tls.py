"""TLS of a listener: what its configs ask for, made ready for use, and what may take its place.

Rules: `ssl.*` of Kafka's documentation, "Broker Configs"; KIP-651 (PEM files: a key and a certificate chain
in one); KIP-226 and KIP-978 (a listener takes another certificate while the broker runs, for the same holder
unless `ssl.allow.dn.changes`, `ssl.allow.san.changes`).
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import Final, NamedTuple

from klog.config.broker import BrokerConfig
from klog.config.keys import ConfigError, text_of
from klog.formats.errors import FormatError, UsageError
from klog.server.certificates import Holder, holder_of

_VERIFY: Final = {"required": ssl.CERT_REQUIRED, "requested": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}


class TlsSettings(NamedTuple):
    """What the configs say."""

    keystore: str
    key_password: str | None
    truststore: str | None
    client_auth: str
    checks_names: bool
    allow_dn_changes: bool
    allow_san_changes: bool


@dataclass(frozen=True, slots=True)
class Tls:
    """Ready for use. `context` is for those that connect, `to_brokers` for connecting to other brokers'
    listeners of the same name; `stamp` tells whether the files have changed since.
    """

    settings: TlsSettings
    stamp: tuple[tuple[int, int], ...]
    holder: Holder
    context: ssl.SSLContext
    to_brokers: ssl.SSLContext


def read_tls(config: BrokerConfig, listener: str, present: Tls | None = None) -> Tls:
    """TLS for a listener; `present` itself where neither configs nor files have changed.

    Raises `ConfigError`.
    """
    settings = _settings(config, listener)
    try:
        stamp = _stamp(settings)
        if present is not None and present.settings == settings and present.stamp == stamp:
            return present
        with open(settings.keystore, encoding="ascii", errors="replace") as file:
            holder = holder_of(file.read())
        return Tls(settings, stamp, holder, _context(settings), _to_brokers(settings))
    except (OSError, FormatError) as error:
        # What OpenSSL refuses is an OSError, too.
        raise ConfigError("ssl.keystore.location", settings.keystore, f"cannot be used: {error}") from error


def check_between_brokers(tls: Tls) -> None:
    """Whether a broker with these configs could connect to itself, its host's name aside: if it cannot, no
    broker of a cluster with such configs can. Raises `ConfigError`.
    """
    settings = tls.settings
    try:
        client = _to_brokers(settings._replace(checks_names=False))
        _shake_hands(client, tls.context)
    except OSError as error:
        raise ConfigError(
            "ssl.truststore.location",
            str(settings.truststore),
            f"brokers could not connect to each other: {error}",
            cure="name a file with the certificate of who has signed those of the brokers",
        ) from error


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    waiting = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while waiting:
        # Each turn one of them has something new to read, or fails.
        waiting = [side for side in waiting if _wants_more(side)]


def _wants_more(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return True
    return False


def check_replacement(listener: str, old: Tls, new: Tls) -> None:
    """Whether a running listener may go on with `new`. Raises `UsageError`."""
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
        return text_of(config.of_listener(listener, key)) or None

    keystore = text("ssl.keystore.location")
    if keystore is None or text("ssl.keystore.type") != "PEM":
        raise ConfigError(
            "ssl.keystore.location",
            str(keystore),
            f"listener {listener} needs a key and a certificate chain in one PEM file",
            cure="set ssl.keystore.type=PEM and ssl.keystore.location",
        )
    return TlsSettings(
        keystore,
        text("ssl.key.password"),
        text("ssl.truststore.location"),
        text("ssl.client.auth") or "none",
        text("ssl.endpoint.identification.algorithm") is not None,
        config.flag("ssl.allow.dn.changes"),
        config.flag("ssl.allow.san.changes"),
    )


def _stamp(settings: TlsSettings) -> tuple[tuple[int, int], ...]:
    files = [settings.keystore] + ([] if settings.truststore is None else [settings.truststore])
    found = [os.stat(path) for path in files]
    return tuple((each.st_mtime_ns, each.st_size) for each in found)


def _context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Without a password an encrypted key would be asked for on the terminal.
    context.load_cert_chain(settings.keystore, password=settings.key_password or "")
    if settings.truststore is not None:
        context.load_verify_locations(settings.truststore)
    context.verify_mode = _VERIFY[settings.client_auth]
    return context


def _to_brokers(settings: TlsSettings) -> ssl.SSLContext:
    """With the listener's own certificate, should the other side ask for one."""
    context = ssl.create_default_context(cafile=settings.truststore)
    context.check_hostname = settings.checks_names
    context.load_cert_chain(settings.keystore, password=settings.key_password or "")
    return context
