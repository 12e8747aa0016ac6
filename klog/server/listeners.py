"""Listeners: where a broker is reached, by the names of Kafka's configs.

Rules: `listeners`, `advertised.listeners`, `listener.security.protocol.map`, `inter.broker.listener.name`,
`control.plane.listener.name` (Kafka documentation, "Broker Configs"; KIP-103, KIP-291). PLAINTEXT and SSL are
served; a SASL listener is refused when the broker starts, not when a client comes.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple

from klog.config.broker import BrokerConfig
from klog.config.keys import ConfigError
from klog.metadata.values import Endpoint
from klog.server.network import Listener

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

    def endpoints(self, ports: Mapping[str, int]) -> tuple[Endpoint, ...]:
        """What is registered: port 0 becomes the port that was bound (`ports` by listener name)."""
        return tuple(
            Endpoint(name, self.protocols[name], host, port or ports[name])
            for name, host, port in self.advertised
        )


def read_listeners(config: BrokerConfig) -> Listeners:
    """The listeners that the configs ask for. Raises `ConfigError`."""
    protocols = _protocols(config)
    listening = _addresses(config, "listeners", protocols)
    if not listening:
        raise ConfigError("listeners", "", "a broker needs a listener")
    advertised = listening
    if config.text("advertised.listeners"):
        advertised = _addresses(config, "advertised.listeners", protocols)
    inter_broker = _inter_broker(config, protocols, advertised)
    bound = tuple(
        Listener(name, host, port, _tls(config, name) if protocols[name] == "SSL" else None)
        for name, host, port in listening
    )
    reachable = tuple(
        address._replace(host=address.host if _reachable(address.host) else socket.getfqdn())
        for address in advertised
    )
    return Listeners(bound, protocols, reachable, inter_broker)


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


def _tls(config: BrokerConfig, name: str) -> ssl.SSLContext:
    """A TLS server context from PEM files (KIP-651: `ssl.keystore.type=PEM`), per listener or for all."""

    def text(key: str) -> str | None:
        prefixed = f"listener.name.{name.lower()}.{key}"
        return config.static.get(prefixed) or config.text(key)

    location = text("ssl.keystore.location")
    if location is None or text("ssl.keystore.type") != "PEM":
        raise ConfigError(
            "ssl.keystore.location",
            str(location),
            f"listener {name} needs a key and a certificate chain in one PEM file",
            cure="set ssl.keystore.type=PEM and ssl.keystore.location",
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(location, password=text("ssl.key.password"))
        truststore = text("ssl.truststore.location")
        if truststore is not None:
            context.load_verify_locations(truststore)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError("ssl.keystore.location", location, f"cannot be used: {error}") from error
    wanted = text("ssl.client.auth") or "none"
    context.verify_mode = {"required": ssl.CERT_REQUIRED, "requested": ssl.CERT_OPTIONAL}.get(
        wanted, ssl.CERT_NONE
    )
    return context
