"""Listeners: where a broker is reached, by the names of Kafka's configs.

Rules: `listeners`, `advertised.listeners`, `listener.security.protocol.map`, `inter.broker.listener.name`,
`control.plane.listener.name` (Kafka documentation, "Broker Configs"; KIP-103, KIP-291). PLAINTEXT and SSL are
served; a SASL listener is refused when the broker starts, not when a client comes.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from typing import Final, NamedTuple

from klog.config.broker import BrokerConfig
from klog.config.keys import ConfigError
from klog.formats.errors import UsageError
from klog.metadata.values import Endpoint
from klog.server.network import Listener
from klog.server.tls import Tls, check_between_brokers, check_replacement, read_tls

_URL: Final = re.compile(r"([A-Za-z0-9_]+)://(\[[^\]]*\]|[^:\[\]]*):(-?[0-9]+)")
_SERVED: Final = ("PLAINTEXT", "SSL")


class _Address(NamedTuple):
    name: str
    host: str
    port: int


class Listeners(NamedTuple):
    """All that is known of a broker's listeners before it is bound."""

    bound: tuple[Listener, ...]
    protocols: Mapping[str, str]
    advertised: tuple[_Address, ...]
    inter_broker: str
    tls: Mapping[str, Tls]

    def endpoints(self, ports: Mapping[str, int]) -> tuple[Endpoint, ...]:
        """What is registered: port 0 becomes the port that was bound (`ports` by listener name)."""
        return tuple(
            Endpoint(name, self.protocols[name], host, port or ports[name])
            for name, host, port in self.advertised
        )


def read_listeners(config: BrokerConfig, present: Listeners | None = None) -> Listeners:
    """The listeners that the configs ask for; of `present` is kept what has not changed.

    Raises `ConfigError`.
    """
    protocols = _protocols(config)
    listening = _addresses(config, "listeners", protocols)
    if not listening:
        raise ConfigError("listeners", "", "a broker needs a listener")
    advertised = listening
    if config.text("advertised.listeners"):
        advertised = _addresses(config, "advertised.listeners", protocols)
    inter_broker = _inter_broker(config, protocols, advertised)
    unknown = {each.name for each in advertised} - {each.name for each in listening}
    if unknown:
        raise ConfigError(
            "advertised.listeners",
            config.text("advertised.listeners") or "",
            f"{', '.join(sorted(unknown))}: only what is among the listeners can be advertised",
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
    """Whether a running broker may go on with `new`. Raises `UsageError`."""
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
            # Controllers go on with the address that they know.
            raise UsageError(f"The address of inter-broker listener {name} cannot be updated")
        if name in new.tls:
            check_replacement(name, old.tls[name], new.tls[name])


def _reachable(host: str) -> bool:
    return host not in ("", "0.0.0.0", "::")  # noqa: S104 (compared, not bound)


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


def _inter_broker(
    config: BrokerConfig, protocols: Mapping[str, str], advertised: tuple[_Address, ...]
) -> str:
    name = config.text("inter.broker.listener.name")
    if name is None:
        wanted = config.text("security.inter.broker.protocol") or "PLAINTEXT"
        name = next((each.name for each in advertised if protocols[each.name] == wanted), None)
    if name is None or name.upper() not in {each.name for each in advertised}:
        raise ConfigError(
            "inter.broker.listener.name", str(name), "it must be one of the advertised listeners"
        )
    return name.upper()
