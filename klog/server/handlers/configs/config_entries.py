"""The configs of a DescribeConfigs answer: value, source, synonyms, type, and whether they are read-only.

Rules: Kafka's ConfigHelper; KIP-226 (sources and synonyms), KIP-569 (types and documentation). The texts are
our own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from klog.config.broker import KEYS_BY_NAME as BROKER_KEYS
from klog.config.broker import BrokerConfig, Source
from klog.config.broker_topics import topic_defaults
from klog.config.documentation import broker_documentation, topic_documentation
from klog.config.dynamic import broker_key, merged, synonyms
from klog.config.group import KEYS_BY_NAME as GROUP_KEYS
from klog.config.group import broker_default, group_values
from klog.config.keys import ConfigKey, Dynamic, Value, text_of
from klog.config.topic import KEYS_BY_NAME as TOPIC_KEYS
from klog.config.topic import SYNONYMS as TOPIC_SYNONYMS
from klog.config.topic import parse_overrides

UNKNOWN_TYPE: Final = 0
# Set one, and Kafka's broker has the other too.
_SAME_ID: Final = ("broker.id", "node.id")


class Synonym(NamedTuple):
    """A value that a config has, or would have if those before it were not set."""

    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """One config, as in an answer. The value of a sensitive config is never sent. Unknown ones have no
    documentation.
    """

    name: str
    value: str | None
    config_source: int
    synonyms: tuple[Synonym, ...]
    config_type: int
    read_only: bool
    is_sensitive: bool
    documentation: str | None = None


def topic_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """All configs of a topic, those included that only its overrides know. Raises `ConfigError`."""
    known = {name: text for name, text in overrides.items() if name in TOPIC_KEYS}
    values: dict[str, Value] = topic_defaults(config) | parse_overrides(known)
    values |= {name: text for name, text in overrides.items() if name not in TOPIC_KEYS}
    return [topic_entry(config, overrides, name, value) for name, value in values.items()]


def topic_entry(config: BrokerConfig, overrides: Mapping[str, str], name: str, value: Value) -> ConfigEntry:
    """One config of a topic with `overrides`, whose value is `value`."""
    key = TOPIC_KEYS.get(name)
    sensitive = _sensitive(key)
    text = None if sensitive else text_of(value)
    found: list[Synonym] = []
    if name in overrides:
        found.append(Synonym(name, text, Source.DYNAMIC_TOPIC))
    of_broker = TOPIC_SYNONYMS.get(name)
    if of_broker:
        found += broker_synonyms(config, of_broker[0].broker_config, sensitive=sensitive)
    entry = _entry(name, text, key, found, read_only=False)
    return entry._replace(documentation=topic_documentation().get(name))


def group_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """All configs of a group, each with one value, as in Kafka 4.1. Raises `ConfigError`."""
    entries = []
    for name, value in group_values(config, overrides).items():
        source = Source.DYNAMIC_GROUP if name in overrides else Source.DEFAULT
        found = [Synonym(name, str(value), source)]
        entry = _entry(name, str(value), GROUP_KEYS[name], found, read_only=False)
        entries.append(entry._replace(documentation=broker_documentation().get(broker_default(name))))
    return entries


def broker_entries(config: BrokerConfig) -> list[ConfigEntry]:
    """All configs of the broker itself, unknown ones of its properties included."""
    texts = merged(_static(config), config.cluster, config.per_broker)
    names = {name: None for name, key in BROKER_KEYS.items() if not key.internal} | dict.fromkeys(texts)
    return [_broker_entry(config, name, texts.get(name)) for name in names]


def cluster_default_entries(config: BrokerConfig) -> list[ConfigEntry]:
    """The dynamic defaults of all brokers: only those that are set."""
    entries = []
    for name, text in config.cluster.items():
        key = broker_key(name)
        sensitive = _sensitive(key)
        found = [
            each
            for each in broker_synonyms(config, name, sensitive=sensitive)
            if each.source == Source.DYNAMIC_DEFAULT_BROKER
        ]
        value = None if sensitive else text
        entries.append(_documented(_entry(name, value, key, found, read_only=_read_only(name)), key))
    return entries


def _broker_entry(config: BrokerConfig, name: str, text: str | None) -> ConfigEntry:
    key = broker_key(name)
    sensitive = _sensitive(key)
    value: str | None = None
    if not sensitive and key is not None:
        value = text_of(key.default if text is None else key.parse(text))
    found = broker_synonyms(config, name, sensitive=sensitive)
    return _documented(_entry(name, value, key, found, read_only=_read_only(name)), key)


def _documented(entry: ConfigEntry, key: ConfigKey | None) -> ConfigEntry:
    """The entry of a broker config with its text; configs of one listener have that of the config."""
    return entry if key is None else entry._replace(documentation=broker_documentation().get(key.name))


def broker_synonyms(config: BrokerConfig, name: str, *, sensitive: bool) -> list[Synonym]:
    """Every value that a broker config has, the one in force first.

    What stands before the first value of its own name is left out, as Kafka does: `log.retention.hours`
    alone is thus no source of `log.retention.ms`.
    """
    names = synonyms(name)
    found: list[Synonym] = []
    for source, layer in (
        (Source.DYNAMIC_BROKER, config.per_broker),
        (Source.DYNAMIC_DEFAULT_BROKER, config.cluster),
        (Source.STATIC_BROKER, _static(config)),
        (Source.DEFAULT, _defaults(names)),
    ):
        found += [
            Synonym(each, None if sensitive else layer[each], source) for each in names if each in layer
        ]
    own = [index for index, each in enumerate(found) if each.name == name]
    return found[own[0] :] if own else []


def _static(config: BrokerConfig) -> Mapping[str, str]:
    given = [name for name in _SAME_ID if name in config.static]
    return (
        dict(config.static) | dict.fromkeys(_SAME_ID, config.static[given[0]])
        if len(given) == 1
        else config.static
    )


def _defaults(names: Iterable[str]) -> dict[str, str]:
    texts = {name: text_of(BROKER_KEYS[name].default) for name in names if name in BROKER_KEYS}
    return {name: text for name, text in texts.items() if text is not None}


def _sensitive(key: ConfigKey | None) -> bool:
    # An unknown config may be a secret.
    return key is None or key.sensitive


def _read_only(name: str) -> bool:
    key = BROKER_KEYS.get(name)
    return key is None or key.dynamic is Dynamic.READ_ONLY


def _entry(
    name: str, text: str | None, key: ConfigKey | None, found: list[Synonym], *, read_only: bool
) -> ConfigEntry:
    source = found[0].source if found else Source.DEFAULT
    kind = UNKNOWN_TYPE if key is None else int(key.type)
    return ConfigEntry(name, text, source, tuple(found), kind, read_only, _sensitive(key))
