"""Reads the listeners of a broker from its configs: the addresses that it binds and those that it advertises.

Rules: `listeners`, `advertised.listeners`, `listener.security.protocol.map`, `inter.broker.listener.name`,
`control.plane.listener.name` (Kafka documentation, "Broker Configs"; KIP-103, KIP-291). PLAINTEXT and SSL are
served; with a SASL listener the broker does not start.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping
from typing import Final, NamedTuple

from klog.config.broker import BrokerConfig
from klog.config.keys import ConfigError
from klog.formats.errors import UsageError
from klog.metadata.values import Endpoint
from klog.server.network import Listener
from klog.server.network.tls import Tls, check_between_brokers, check_replacement, read_tls

_URL: Final = re.compile(r"([A-Za-z0-9_]+)://(\[[^\]]*\]|[^:\[\]]*):(-?[0-9]+)")
_SERVED: Final = ("PLAINTEXT", "SSL")


class _Address(NamedTuple):
    name: str
    host: str
    port: int


class Listeners(NamedTuple):
    """The listeners of a broker before they are bound."""

    bound: tuple[Listener, ...]
    protocols: Mapping[str, str]
    advertised: tuple[_Address, ...]
    inter_broker: str
    tls: Mapping[str, Tls]

    def endpoints(self, ports: Mapping[str, int]) -> tuple[Endpoint, ...]:
        """The endpoints to register. Port 0 becomes the port that was bound (`ports` by listener name)."""
        return tuple(
            Endpoint(name, self.protocols[name], host, port or ports[name])
            for name, host, port in self.advertised
        )


def read_listeners(config: BrokerConfig, present: Listeners | None = None) -> Listeners:
    """The listeners in the configs. TLS that has not changed is taken from `present`.

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
        name: read_tls(config, name, None if present is None else present.tls.get(name))
        for name, _, _ in listening
        if protocols[name] == "SSL"
    }
    if inter_broker in tls:
        check_between_brokers(tls[inter_broker])
    bound = tuple(
        Listener(name, host, port, tls[name].context if name in tls else None)
        for name, host, port in listening
    )
    reachable = tuple(
        address._replace(host=address.host if _reachable(address.host) else socket.getfqdn())
        for address in advertised
    )
    return Listeners(bound, protocols, reachable, inter_broker, tls)


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
    if protocols[name] not in _SERVED:
        raise ConfigError(key, url, f"{protocols[name]} listeners are not served", cure="PLAINTEXT or SSL")
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
