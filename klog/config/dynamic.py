"""Broker configs that change while brokers run: what may be set where, and how secrets are stored.

Rules: KIP-226 and Kafka's DynamicBrokerConfig. A listener's own config is written
`listener.name.<listener>.<config>`. Names that Kafka does not know are accepted, because they may be a
plugin's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from klog.config.broker import KEYS_BY_NAME, BrokerConfig
from klog.config.broker_checks import check_together
from klog.config.keys import ConfigError, ConfigKey, Dynamic, Type, at_least
from klog.config.password_encoder import OLD_SECRET, SECRET, encoder_of
from klog.formats.constants import INT64_MAX
from klog.formats.errors import UsageError

_LISTENER: Final = re.compile(r"listener\.name\.[^.]*\.(.*)", re.DOTALL)
# The configs of a listener that may be set for the whole cluster.
_LISTENER_CLUSTER_WIDE: Final = ("max.connections", "max.connection.creation.rate", "num.network.threads")
# The configs that each listener has its own of while brokers run.
_PER_LISTENER: Final = (
    *(f"ssl.{store}store.{part}" for store in ("key", "trust") for part in ("location", "password", "type")),
    *("ssl.key.password", "ssl.keystore.key"),
    *("ssl.keystore.certificate.chain", "ssl.truststore.certificates"),
)
# These have the form `<listener prefix><mechanism>.<config>`.
_OF_A_MECHANISM: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)

# Dynamic configs of brokers that Kafka never reads from a file.
THROTTLES: Final[Mapping[str, ConfigKey]] = {
    name: ConfigKey(name, Type.LONG, INT64_MAX, at_least(0), dynamic=Dynamic.CLUSTER)
    for name in (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
}


def throttle(config: BrokerConfig, name: str) -> int | None:
    """One of `THROTTLES` in bytes per second, which has dynamic values only; None if there is no limit."""
    for given in (config.per_broker, config.cluster):
        if name in given:
            value = THROTTLES[name].parse(given[name])
            return value if isinstance(value, int) and value < INT64_MAX else None
    return None


_SYNONYM_GROUPS: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_FLUSH: Final = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")

_PASSWORDS: Final = tuple(
    name
    for name, key in KEYS_BY_NAME.items()
    if key.type is Type.PASSWORD and key.dynamic is not Dynamic.READ_ONLY
)
_LISTENER_THREADS: Final = re.compile(r"listener\.name\.([^.]*)\.num\.network\.threads")
# A change may at most halve or double the number of threads.
_THREADS: Final = (
    "num.io.threads",
    "num.network.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "log.cleaner.threads",
)


def base_name(name: str) -> str:
    """The general config that a listener's own one overrides; a general config itself."""
    match = _LISTENER.fullmatch(name)
    return name if match is None else match[1]


def synonyms(name: str) -> tuple[str, ...]:
    """The configs that mean the same in other units, in the order of precedence. A listener's own config
    comes before the general one.
    """
    for group in _SYNONYM_GROUPS:
        if name in group:
            return group
    if name == _FLUSH[0]:
        return _FLUSH
    base = base_name(name)
    if base == name:
        return (name,)
    return (name, next((each for each in _OF_A_MECHANISM if base.endswith(each)), base))


def broker_key(name: str) -> ConfigKey | None:
    """The definition of a broker config, with or without a listener prefix."""
    found = KEYS_BY_NAME.get(name) or THROTTLES.get(name)
    if found is None:
        others = (KEYS_BY_NAME.get(each) for each in synonyms(name))
        found = next((key for key in others if key is not None), None)
    return found


def merged(*layers: Mapping[str, str]) -> dict[str, str]:
    """The effective texts of layers, later layers over earlier ones.

    A config that is set removes its synonyms.
    """
    texts: dict[str, str] = {}
    for layer in layers:
        for name in layer:
            for other in synonyms(name) if base_name(name) == name else (name,):
                texts.pop(other, None)
        texts.update(layer)
    return texts


def _name_problem(name: str, *, per_broker: bool) -> str | None:
    key, base = KEYS_BY_NAME.get(name), base_name(name)
    if key is not None and key.dynamic is Dynamic.READ_ONLY:
        return "Cannot update these configs dynamically"
    if name in _PER_LISTENER:
        return "These security configs can be dynamically updated only per-listener using the listener prefix"
    if per_broker:
        return None
    of_listener = base != name and base not in _LISTENER_CLUSTER_WIDE
    if of_listener or (key is not None and key.dynamic is Dynamic.PER_BROKER):
        return "Cannot update these configs at default cluster level, broker id must be specified"
    return None


def _check_value(name: str, text: str) -> None:
    key = KEYS_BY_NAME.get(base_name(name)) or THROTTLES.get(base_name(name))
    if key is not None:
        key.parse(text)


def check_dynamic_configs(config: BrokerConfig, changed: Mapping[str, str], *, per_broker: bool) -> None:
    """Checks whether `changed` may become all dynamic configs of the broker, or the cluster's defaults.

    Raises `ConfigError` (an invalid value), `UsageError` (a config that cannot be set there).
    """
    problems: dict[str, list[str]] = {}
    for name in sorted(changed):
        problem = _name_problem(name, per_broker=per_broker)
        if problem is not None:
            problems.setdefault(problem, []).append(name)
    for problem, names in problems.items():
        raise UsageError(f"{problem}: {', '.join(names)}")
    for name, text in changed.items():
        _check_value(name, text)
    new = config.changed(per_broker=changed) if per_broker else config.changed(cluster=changed)
    check_together(new)
    for name in _THREADS:
        _check_threads(name, config.number(name), new.number(name))
    for name in changed:
        match = _LISTENER_THREADS.fullmatch(name)
        if match is not None:
            old_and_new = (each.for_listener(match[1], "num.network.threads") for each in (config, new))
            _check_threads(name, *(value for value in old_and_new if isinstance(value, int)))


def _check_threads(name: str, old: int, new: int) -> None:
    if new == old:
        return
    failed = f"Dynamic thread count update validation failed for {name}={new}"
    if new <= 0:
        raise UsageError(f"{failed}, value should be at least 1")
    if new < old // 2:
        raise UsageError(f"{failed}, value should be at least half the current value {old}")
    if new > old * 2:
        raise UsageError(f"{failed}, value should not be greater than double the current value {old}")


def applicable(texts: Mapping[str, str], *, per_broker: bool) -> tuple[dict[str, str], list[str]]:
    """The dynamic configs that can be applied, and the names of the others."""
    kept: dict[str, str] = {}
    passed_over: list[str] = []
    for name, text in texts.items():
        try:
            _check_value(name, text)
        except ConfigError:
            passed_over.append(name)
            continue
        if _name_problem(name, per_broker=per_broker) is None:
            kept[name] = text
        else:
            passed_over.append(name)
    return kept, passed_over


def passwords(names: Iterable[str]) -> list[str]:
    """The configs that hold secrets, including those of plugins. The tree stores them encrypted."""
    return [name for name in names if name.endswith(_PASSWORDS)]


def decoded(stored: Mapping[str, str], config: BrokerConfig) -> tuple[dict[str, str], dict[str, str]]:
    """Stored dynamic configs with their secrets decrypted, and the
    reasons why some could not be decrypted.
    """
    encoder, texts, unreadable = encoder_of(config), dict(stored), {}
    for name in passwords(stored):
        try:
            if encoder is None:
                raise UsageError(f"{SECRET} is not set")
            texts[name] = encoder.decode(stored[name])
        except UsageError as error:
            del texts[name]
            unreadable[name] = str(error)
    return texts, unreadable


def encoded(texts: Mapping[str, str], config: BrokerConfig, *, per_broker: bool) -> dict[str, str]:
    """Dynamic configs as the tree stores them. Raises `UsageError` for secrets that cannot be stored."""
    secrets = passwords(texts)
    encoder = encoder_of(config)
    if secrets and not per_broker:
        raise UsageError(f"Password config can be defined only at broker level: {', '.join(secrets)}")
    if secrets and encoder is None:
        raise UsageError(
            f"Password encoder secret not configured: {', '.join(secrets)}", cure=f"set {SECRET}"
        )
    return {**texts, **{name: encoder.encode(texts[name]) for name in secrets if encoder is not None}}


def reencrypted(stored: Mapping[str, str], config: BrokerConfig) -> dict[str, str]:
    """Stored dynamic configs whose secrets are encrypted with the new secret instead of the old one.

    Raises `UsageError` if there are such secrets and no new one.
    """
    old, readable = encoder_of(config, OLD_SECRET), dict[str, str]()
    if old is None:
        return dict(stored)
    for name in passwords(stored):
        # A secret that is encrypted with the new one already stays as it is: the old one may stay in the file
        # for a while.
        with suppress(UsageError):
            readable[name] = old.decode(stored[name])
    return {**stored, **encoded(readable, config, per_broker=True)}
