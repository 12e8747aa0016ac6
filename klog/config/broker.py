"""The configs of one broker: dynamic configs over the properties file with its overrides, over Kafka's
defaults.

Precedence (KIP-226): the broker's own dynamic configs, those of the whole cluster, the properties file with
the options of the command line over it, default.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, NamedTuple

from klog.config import broker_keys, broker_security, broker_unused
from klog.config.keys import ConfigError, ConfigKey, Value, text_of

_MODULES: Final = (broker_keys, broker_security, broker_unused)
KEYS_BY_NAME: Final[Mapping[str, ConfigKey]] = {
    key.name: key for key in sorted((key for part in _MODULES for key in part.KEYS), key=lambda key: key.name)
}


# Other configs that Kafka's own authorizers, tiered storage and config providers read.
_OF_PLUGINS: Final = ("allow.everyone.if.no.acl.found", "config.providers", "super.users")
# Kafka takes it as a property of the JVM.
JAAS_FILE: Final = "java.security.auth.login.config"
# klog's own, of brokers or listeners (`klog.server.network.sasl`).
SASL_USERS_FILE: Final = "klog.sasl.users.file"
SASL_USERNAME: Final = "klog.sasl.username"
SASL_PASSWORD: Final = "klog.sasl.password"  # noqa: S105 (a name)
# klog's own: configs that may be set although klog does not enforce them (`broker_protection`).
ALLOW_UNENFORCED: Final = "klog.allow.unenforced.configs"
_PREFIXES_OF_PLUGINS: Final = ("authorizer.zookeeper.", "config.providers.", "rlmm.config.", "rsm.config.")
LISTENER_PREFIX: Final = re.compile(r"listener\.name\.[^.]*\.")


class Source(IntEnum):
    """The source of a value. The numbers are those of DescribeConfigs (KIP-226)."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_GROUP = 8


class Setting(NamedTuple):
    """One value of a config and its source."""

    name: str
    text: str | None
    source: Source


@dataclass(frozen=True)
class BrokerConfig:
    """All configs of one broker. Immutable: `changed` makes new ones.

    The three maps hold texts by name, as they were given. Unknown names are kept and have no effect; they may
    be a plugin's, or a mistake (see `unknown`).
    """

    static: Mapping[str, str]
    cluster: Mapping[str, str] = field(default_factory=dict)
    per_broker: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for given in (self.static, self.cluster, self.per_broker):
            for name, text in given.items():
                key = KEYS_BY_NAME.get(name)
                if key is not None:
                    key.parse(text)

    def settings(self, name: str) -> list[Setting]:
        """All values of a config, the effective one first."""
        found = [
            Setting(name, given[name], source)
            for given, source in (
                (self.per_broker, Source.DYNAMIC_BROKER),
                (self.cluster, Source.DYNAMIC_DEFAULT_BROKER),
                (self.static, Source.STATIC_BROKER),
            )
            if name in given
        ]
        key = KEYS_BY_NAME.get(name)
        if key is not None and key.default is not None:
            found.append(Setting(name, text_of(key.default), Source.DEFAULT))
        return found

    def explicit(self, name: str) -> Value:
        """The value that was set, or None."""
        for given in (self.per_broker, self.cluster, self.static):
            if name in given:
                return KEYS_BY_NAME[name].parse(given[name])
        return None

    def __getitem__(self, name: str) -> Value:
        """The effective value."""
        found = self.explicit(name)
        return KEYS_BY_NAME[name].default if found is None else found

    def number(self, name: str) -> int:
        """The effective value of an integer config that always has one."""
        value = self[name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(name, str(value), "it must be set")
        return value

    def flag(self, name: str) -> bool:
        """The effective value of a boolean config."""
        return self[name] is True

    def text(self, name: str) -> str | None:
        """The effective value of a text config."""
        value = self[name]
        return None if value is None else text_of(value)

    def for_listener(self, listener: str, name: str) -> Value:
        """The effective value for one listener: its own, else the general one. Raises `ConfigError`."""
        own = self.own_of_listener(listener, name)
        return self[name] if own is None else own

    def own_of_listener(self, listener: str, name: str) -> Value:
        """The value that was set for one listener (`listener.name.<listener>.<name>`), or None.

        Raises `ConfigError`.
        """
        own = self.own_text(f"listener.name.{listener.lower()}.{name}")
        return None if own is None else KEYS_BY_NAME[name].parse(own)

    def for_mechanism(self, listener: str, mechanism: str, name: str) -> Value:
        """The effective value for a SASL mechanism of a listener, whose own config is
        `listener.name.<listener>.<mechanism>.<name>`; else that of the listener.

        Raises `ConfigError`.
        """
        own = self.own_text(f"listener.name.{listener.lower()}.{mechanism.lower()}.{name}")
        return self.for_listener(listener, name) if own is None else KEYS_BY_NAME[name].parse(own)

    def own_text(self, name: str) -> str | None:
        """The text that was given under just this name, also one that Kafka does not know."""
        given = (self.per_broker, self.cluster, self.static)
        return next((each[name] for each in given if name in each), None)

    def changed(
        self, *, cluster: Mapping[str, str] | None = None, per_broker: Mapping[str, str] | None = None
    ) -> BrokerConfig:
        """The configs with other dynamic configs. Raises `ConfigError`."""
        return replace(
            self,
            cluster=self.cluster if cluster is None else dict(cluster),
            per_broker=self.per_broker if per_broker is None else dict(per_broker),
        )

    def unknown(self) -> dict[str, str | None]:
        """The names in the file that Kafka does not know, each with the most similar known name or None."""
        return {name: _nearest(name) for name in self.static if not _known(name)}


def _known(name: str) -> bool:
    prefix, own = _split(name)
    # A listener's own config may belong to a SASL mechanism: `plain.sasl.jaas.config`.
    if own in KEYS_BY_NAME or (prefix and own.partition(".")[2] in KEYS_BY_NAME):
        return True
    if own in (SASL_USERS_FILE, SASL_USERNAME, SASL_PASSWORD):
        return True
    return name in (*_OF_PLUGINS, ALLOW_UNENFORCED, JAAS_FILE) or name.startswith(_PREFIXES_OF_PLUGINS)


def _nearest(name: str) -> str | None:
    prefix, own = _split(name)
    found = difflib.get_close_matches(own, KEYS_BY_NAME, n=1, cutoff=0.75)
    return prefix + found[0] if found else None


def _split(name: str) -> tuple[str, str]:
    """The listener prefix (empty for a general config) and the rest of a name."""
    match = LISTENER_PREFIX.match(name)
    return ("", name) if match is None else (match[0], name[match.end() :])
