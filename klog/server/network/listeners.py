"""Reads the listeners of a broker from its configs: the addresses that it binds and those that it advertises.

Rules: `listeners`, `advertised.listeners`, `listener.security.protocol.map`, `inter.broker.listener.name`,
`control.plane.listener.name` (Kafka documentation, "Broker Configs"; KIP-103, KIP-291).
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from klog.client.sasl import Login
from klog.config.broker import BrokerConfig
from klog.config.keys import ConfigError
from klog.config.security_protocols import SECURITY_PROTOCOLS
from klog.formats.errors import UsageError
from klog.metadata.values import Endpoint
from klog.security.authentication.principal_rules import UNCHANGED
from klog.security.authentication.steps import Authentication
from klog.server.network import Listener
from klog.server.network.sasl import SaslConfig, login_to_brokers, read_sasl
from klog.server.network.tls import (
    Tls,
    check_between_brokers,
    check_replacement,
    read_principal_rules,
    read_tls,
)

_URL: Final = re.compile(r"([A-Za-z0-9_]+)://(\[[^\]]*\]|[^:\[\]]*):(-?[0-9]+)")
_TLS: Final = ("SSL", "SASL_SSL")
_SASL: Final = ("SASL_PLAINTEXT", "SASL_SSL")

NewAuthentication = Callable[[str], Callable[[], Authentication]]
"""Gives what makes the exchanges of a listener's connections: the same object for the same name."""


class _Address(NamedTuple):
    name: str
    host: str
    port: int


def no_authentication(listener: str) -> Callable[[], Authentication]:
    """For a broker without SASL listeners. Raises UsageError."""
    raise UsageError(f"nothing can authenticate the clients of listener {listener}")


class Listeners(NamedTuple):
    """The listeners of a broker before they are bound.

    `tls` and `sasl` are those of the listeners that have them. `login` is with which this broker logs in at
    the listener between brokers, if that is one with SASL.
    """

    bound: tuple[Listener, ...]
    protocols: Mapping[str, str]
    advertised: tuple[_Address, ...]
    inter_broker: str
    tls: Mapping[str, Tls]
    sasl: Mapping[str, SaslConfig]
    login: Login | None
    authentication: NewAuthentication

    def endpoints(self, ports: Mapping[str, int]) -> tuple[Endpoint, ...]:
        """The endpoints to register. Port 0 becomes the port that was bound (`ports` by listener name)."""
        return tuple(
            Endpoint(name, self.protocols[name], host, port or ports[name])
            for name, host, port in self.advertised
        )


def read_listeners(
    config: BrokerConfig,
    present: Listeners | None = None,
    authentication: NewAuthentication = no_authentication,
) -> Listeners:
    """The listeners in the configs. What has not changed is taken from `present`, `authentication` always.

    Raises `ConfigError`.
    """
    protocols = _protocols(config)
    listening = _addresses(config, "listeners", protocols)
    if not listening:
        raise ConfigError("listeners", "", "a broker needs a listener")
    _check_ports(config, listening)
    advertised = listening
    if config.text("advertised.listeners") is not None:
        advertised = _addresses(config, "advertised.listeners", protocols)
    _check_advertised(config, advertised)
    inter_broker = _inter_broker(config, advertised)
    unknown = {each.name for each in advertised} - {each.name for each in listening}
    if unknown:
        raise ConfigError(
            "advertised.listeners",
            config.text("advertised.listeners") or "",
            f"{', '.join(sorted(unknown))}: only listeners can be advertised",
        )
    tls = {
        name: read_tls(
            config, name, None if present is None else present.tls.get(name), sasl=protocols[name] in _SASL
        )
        for name, _, _ in listening
        if protocols[name] in _TLS
    }
    if inter_broker in tls:
        check_between_brokers(tls[inter_broker])
    sasl = {name: read_sasl(config, name) for name, _, _ in listening if protocols[name] in _SASL}
    login = login_to_brokers(config, inter_broker, sasl[inter_broker]) if inter_broker in sasl else None
    authentication = authentication if present is None else present.authentication
    bound = tuple(
        Listener(
            name,
            host,
            port,
            tls[name].context if name in tls else None,
            authentication(name) if name in sasl else None,
            read_principal_rules(config, name) if name in tls else UNCHANGED,
        )
        for name, host, port in listening
    )
    reachable = tuple(
        address._replace(host=address.host if _reachable(address.host) else socket.getfqdn())
        for address in advertised
    )
    return Listeners(bound, protocols, reachable, inter_broker, tls, sasl, login, authentication)


def open_to_everybody(config: BrokerConfig) -> list[str]:
    """The listeners that other machines reach and whose clients need not say who they are. Raises
    `ConfigError`.
    """
    protocols = _protocols(config)
    return [
        f"{name}://{host}:{port}"
        for name, host, port in _addresses(config, "listeners", protocols)
        if not _is_loopback(host) and not _authenticates(config, name, protocols[name])
    ]


def _authenticates(config: BrokerConfig, listener: str, protocol: str) -> bool:
    if protocol in _SASL:
        return True
    return protocol in _TLS and config.for_listener(listener, "ssl.client.auth") == "required"


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_ip_version(host) is not None and ipaddress.ip_address(host).is_loopback)


def check_listeners(old: Listeners, new: Listeners) -> None:
    """Raises `UsageError` if a running broker must not go on with `new`."""
    if new.inter_broker != old.inter_broker:
        raise UsageError(
            f"Advertised listener must be specified for inter-broker listener {old.inter_broker}"
        )
    before = {each.name: each for each in old.bound}
    for listener in new.bound:
        name = listener.name
        if name not in before:
            continue
        if old.protocols[name] != new.protocols[name]:
            raise UsageError(f"Security protocol cannot be updated for existing listener {name}")
        if name == new.inter_broker and listener.address != before[name].address:
            # Controllers keep the address that they have read.
            raise UsageError(f"The address of inter-broker listener {name} cannot be updated")
        if name in new.tls:
            check_replacement(name, old.tls[name], new.tls[name])


def _reachable(host: str) -> bool:
    return host not in ("", "::")


def _check_ports(config: BrokerConfig, listening: tuple[_Address, ...]) -> None:
    """Each listener needs a port of its own, but two may share one if one has an IPv4 address and the
    other an IPv6 address (KIP-797). Raises `ConfigError`.
    """
    kinds: dict[int, list[int | None]] = {}
    for address in listening:
        if address.port != 0:
            kinds.setdefault(address.port, []).append(_ip_version(address.host))
    for found in kinds.values():
        if len(found) > 1 and (len(found) > 2 or set(found) != {4, 6}):
            text = config.text("listeners") or ""
            raise ConfigError("listeners", text, "each listener must have a different port")


def _ip_version(host: str) -> int | None:
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return None


def _check_advertised(config: BrokerConfig, advertised: tuple[_Address, ...]) -> None:
    key = "advertised.listeners"
    text = config.text(key)
    if not advertised:
        raise ConfigError(key, text or "", "there must be at least one listener")
    if any(address.host == "0.0.0.0" for address in advertised):  # noqa: S104 (compared, not bound)
        given = text if text is not None else config.text("listeners") or ""
        raise ConfigError(
            key,
            given,
            "no client can reach 0.0.0.0",
            cure="set advertised.listeners to a name or an address that clients know",
        )


def _protocols(config: BrokerConfig) -> dict[str, str]:
    found = {}
    for pair in (config.text("listener.security.protocol.map") or "").split(","):
        name, _, protocol = pair.strip().partition(":")
        found[name.upper()] = protocol.upper()
    return found


def _addresses(config: BrokerConfig, key: str, protocols: Mapping[str, str]) -> tuple[_Address, ...]:
    text = config.text(key) or ""
    found = [_address(key, url.strip(), protocols) for url in text.split(",") if url.strip()]
    names = [address.name for address in found]
    if len(set(names)) < len(names):
        raise ConfigError(key, text, "each listener must have a different name")
    return tuple(found)


def _address(key: str, url: str, protocols: Mapping[str, str]) -> _Address:
    match = _URL.fullmatch(url)
    if match is None:
        raise ConfigError(key, url, "a listener is written NAME://host:port")
    name, port = match[1].upper(), int(match[3])
    if name not in protocols:
        raise ConfigError(key, url, f"listener.security.protocol.map has no protocol for {name}")
    if protocols[name] not in SECURITY_PROTOCOLS:
        raise ConfigError(
            key, url, f"{protocols[name]} is no security protocol", cure=", ".join(SECURITY_PROTOCOLS)
        )
    if not 0 <= port <= 65535:
        raise ConfigError(key, url, "a port is 0 to 65535")
    return _Address(name, match[2].strip("[]"), port)


def _inter_broker(config: BrokerConfig, advertised: tuple[_Address, ...]) -> str:
    key, other = "inter.broker.listener.name", "security.inter.broker.protocol"
    name = config.text(key)
    if name is None:
        key, name = other, config.text(other) or "PLAINTEXT"
    elif config.explicit(other) is not None:
        raise ConfigError(key, name, f"only one of it and {other} should be set")
    names = [each.name for each in advertised]
    if name.upper() not in names:
        raise ConfigError(
            key,
            name,
            f"the listener between brokers must be an advertised one: {', '.join(names)}",
            cure="set inter.broker.listener.name",
        )
    control = config.text("control.plane.listener.name")
    if control is not None and control.upper() not in names:
        raise ConfigError("control.plane.listener.name", control, "it must be an advertised listener")
    if control is not None and control.upper() == name.upper():
        raise ConfigError("control.plane.listener.name", control, "it must differ from that between brokers")
    return name.upper()
