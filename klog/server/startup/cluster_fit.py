"""Checks, before a broker joins, whether it fits the brokers of the cluster that are alive.

Between brokers klog speaks what Kafka 3.9 speaks since `inter.broker.protocol.version` 3.4. A controller that
speaks an older version would send requests that klog does not serve. Kafka checks none of this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from klog.config.kafka_versions import is_before
from klog.formats.errors import KlogError, UsageError
from klog.metadata.values import BrokerRegistration
from klog.protocol.apis import ApiKey
from klog.protocol.channel import Channel
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import build, request_class
from klog.server.peers.broker_channel import Peers

_log = logging.getLogger(__name__)

OLDEST_PROTOCOL: Final = "3.4"
PROTOCOL: Final = "inter.broker.protocol.version"
_BROKER_RESOURCE: Final = 4
_ANSWER_TIMEOUT_MS: Final = 3000

ReadProtocol = Callable[[BrokerRegistration], str | None]
"""The `inter.broker.protocol.version` of a broker, None if it does not tell."""


def require_fit(
    own: BrokerRegistration,
    inter_broker: str,
    own_protocol: str,
    registered: Mapping[int, BrokerRegistration],
    read_protocol: ReadProtocol,
) -> None:
    """Raises `UsageError` if this broker cannot work with the live brokers. `inter_broker` is the listener
    between brokers, `own_protocol` is `inter.broker.protocol.version`.
    """
    others = [each for each in registered.values() if each.broker_id != own.broker_id]
    _require_listener(own, inter_broker, others)
    if others and is_before(own_protocol, OLDEST_PROTOCOL):
        raise UsageError(
            f"{PROTOCOL} is {own_protocol}, and in a cluster klog needs {OLDEST_PROTOCOL} or later",
            cure="raise it on all brokers",
        )
    for other in others:
        protocol = read_protocol(other)
        if protocol is not None and is_before(protocol, OLDEST_PROTOCOL):
            raise UsageError(
                f"{PROTOCOL} of broker {other.broker_id} is {protocol}, and klog needs {OLDEST_PROTOCOL} or"
                " later on all brokers of its cluster",
                cure="raise it there and restart that broker, then start this one",
            )


def _require_listener(own: BrokerRegistration, name: str, others: list[BrokerRegistration]) -> None:
    mine = own.endpoint(name)
    for other in others:
        theirs = other.endpoint(name)
        if theirs is None:
            names = ", ".join(each.listener for each in other.endpoints) or "none"
            raise UsageError(
                f"the listener between brokers is {name} here, and broker {other.broker_id} has no listener"
                f" of that name (it has {names})",
                cure="use the same inter.broker.listener.name on all brokers",
            )
        if mine is not None and theirs.security_protocol != mine.security_protocol:
            raise UsageError(
                f"the listener between brokers, {name}, is {mine.security_protocol} here and"
                f" {theirs.security_protocol} at broker {other.broker_id}",
                cure="use the same listener.security.protocol.map on all brokers",
            )


def protocol_reader(peers: Peers) -> ReadProtocol:
    """Asks brokers over the listener between brokers. One that does not answer is passed over."""

    def read(broker: BrokerRegistration) -> str | None:
        try:
            with peers.channel_to(broker, f"klog-start-{peers.broker_id}", _ANSWER_TIMEOUT_MS) as channel:
                return _read(channel, broker.broker_id)
        except KlogError as error:
            _log.info("broker %d does not tell its %s: %s", broker.broker_id, PROTOCOL, error)
            return None

    return read


def _read(channel: Channel, broker_id: int) -> str | None:
    api = ApiKey.DESCRIBE_CONFIGS
    version = channel.version_of(api)
    resource = {
        "resource_type": _BROKER_RESOURCE,
        "resource_name": str(broker_id),
        "configuration_keys": (PROTOCOL,),
    }
    request = build(
        request_class(api, version),
        resources=[resource],
        include_synonyms=False,
        include_documentation=False,
    )
    for result in channel.send(request).results:
        if result.error_code == ErrorCode.NONE:
            return next((each.value for each in result.configs if each.name == PROTOCOL), None)
    return None
