"""Reads connection settings: `host:port` lists, and Kafka's client properties.

Rules: the client configuration in Kafka's documentation (`bootstrap.servers`, `security.protocol`, `ssl.*`,
`sasl.*`). Other properties are ignored, as by Kafka's tools, so that one file can serve several programs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from klog.client.connection import HostPort
from klog.client.sasl import MECHANISMS, SCRAM_HASHES, Login, Sasl
from klog.client.sasl_oauth import OAUTHBEARER
from klog.config.security_protocols import SECURITY_PROTOCOLS
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    import ssl

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
DEFAULT_PORT: Final = 9092
DEFAULT_TIMEOUT_MS: Final = 30_000

_HOST_PORT: Final = re.compile(
    r"(?:[A-Z_]+://)?(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:\[\]\s]+))(?::(?P<port>\d+))?"
)
_JAAS_OPTION: Final = re.compile(r'\b(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')


def _say_nothing(_: str) -> None:
    """Used if nobody wants to know that a client waits."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How to connect to a cluster. `timeout_ms` limits connecting and each answer.

    `on_waiting` is called once, with a sentence, if no broker listens yet and the client starts to wait.
    """

    bootstrap: tuple[HostPort, ...]
    tls: ssl.SSLContext | None = None
    sasl: Login | None = None
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    client_id: str = "klog"
    on_waiting: Callable[[str], object] = field(default=_say_nothing, repr=False, compare=False)


def parse_bootstrap(text: str) -> tuple[HostPort, ...]:
    """The addresses of `host:port,host:port`; the default port is 9092. Raises UsageError."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _HOST_PORT.fullmatch(part)
        port = int(match["port"] or DEFAULT_PORT) if match else 0
        if match is None or not 0 < port < 1 << 16:
            raise UsageError(f"{part!r} is no broker address", cure="write host:port, several with commas")
        found.append(HostPort(match["v6"] or match["host"], port))
    if not found:
        raise UsageError("no broker address given", cure="--bootstrap-server host:port")
    return tuple(found)


def settings_of(
    properties: Mapping[str, str],
    *,
    bootstrap: str | None = None,
    timeout_ms: int | None = None,
    on_waiting: Callable[[str], object] = _say_nothing,
    now_s: Callable[[], float] = time.time,
) -> ClientSettings:
    """Settings from Kafka's client properties; the keyword arguments take precedence. Raises UsageError.

    `now_s` gives the wall time, by which tokens end.
    """
    servers = bootstrap or properties.get("bootstrap.servers") or DEFAULT_BOOTSTRAP
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise UsageError(
            f"security.protocol={protocol} is unknown", cure=f"one of {', '.join(SECURITY_PROTOCOLS)}"
        )
    if timeout_ms is None:
        timeout_ms = milliseconds(properties, "request.timeout.ms", DEFAULT_TIMEOUT_MS)
    return ClientSettings(
        parse_bootstrap(servers),
        tls=_tls(properties) if protocol.endswith("SSL") else None,
        sasl=_login(properties, timeout_ms, now_s) if protocol.startswith("SASL") else None,
        timeout_ms=timeout_ms,
        client_id=properties.get("client.id", "klog"),
        on_waiting=on_waiting,
    )


def milliseconds(properties: Mapping[str, str], key: str, default: int) -> int:
    """A property that is a number of milliseconds. Raises UsageError."""
    text = properties.get(key, str(default))
    if not text.isdecimal():
        raise UsageError(f"{key}={text} is not a number of milliseconds")
    return int(text)


def _tls(properties: Mapping[str, str]) -> ssl.SSLContext:
    from klog.config import tls_context

    return tls_context.context_of(properties)


def _login(properties: Mapping[str, str], timeout_ms: int, now_s: Callable[[], float]) -> Login:
    mechanism = properties.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in MECHANISMS:
        raise UsageError(f"sasl.mechanism={mechanism} is not supported", cure=" or ".join(MECHANISMS))
    options = {
        name: re.sub(r"\\(.)", r"\1", quoted) or bare
        for name, quoted, bare in _JAAS_OPTION.findall(properties.get("sasl.jaas.config", ""))
    }
    if mechanism == OAUTHBEARER:
        from klog.client import oauth_tokens

        return oauth_tokens.login(properties, options, _tls, now_s=now_s, timeout_s=timeout_ms / 1000)
    if "username" not in options or "password" not in options:
        raise UsageError("sasl.jaas.config has no username and password")
    by_token = mechanism in SCRAM_HASHES and options.get("tokenauth", "").lower() == "true"
    return Sasl(mechanism, options["username"], options["password"], by_token)
