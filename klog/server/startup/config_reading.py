"""Reads the configs a broker starts with: a properties file, options over it, klog's own defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from klog.config.broker import JAAS_FILE, KEYS_BY_NAME, BrokerConfig
from klog.config.keys import ConfigError
from klog.formats import java_properties
from klog.formats.errors import KlogError, UsageError
from klog.server.configs.config_providers import with_variables_replaced
from klog.storage.files.files import read_whole

# The defaults without a properties file: a broker that only this machine reaches.
_OWN_DEFAULTS: Final[Mapping[str, str]] = {
    "broker.id": "0",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dirs": "klog-data",
}
# And that has its metadata for itself. A member of a cluster has Kafka's defaults instead.
_SINGLE_BROKER_DEFAULTS: Final[Mapping[str, str]] = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def read_config(config_file: str | None, options: Sequence[str]) -> BrokerConfig:
    """The configs of a properties file with `key=value` options over it, and variables replaced.

    Raises `UsageError` for an invalid option, `ConfigError` for an invalid value, `StorageError` for a file
    that cannot be read.
    """
    return BrokerConfig(_texts(config_file, options))


def read_kraft_config(
    config_file: str | None, options: Sequence[str]
) -> tuple[BrokerConfig, list[ConfigError]] | None:
    """The configs of a KRaft node without the values that klog does not know, and the errors of those.

    None if the configs are not of a KRaft node. Raises as `read_config` does for all but invalid values.
    """
    texts = _texts(config_file, options)
    if not texts.get("process.roles", "").strip():
        return None
    left_out: list[ConfigError] = []
    for name, text in list(texts.items()):
        try:
            BrokerConfig({name: text})
        except ConfigError as error:
            left_out.append(error)
            del texts[name]
    return BrokerConfig(texts), left_out


def _texts(config_file: str | None, options: Sequence[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    if config_file is not None:
        try:
            texts = java_properties.config_entries(read_whole(config_file))
        except KlogError as error:
            raise error.at(config_file) from None
        _require_known(texts, config_file)
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"-o {option}: an option is written key=value")
        texts[name.strip()] = value.strip()
    if config_file is None:
        single = {} if texts.get("zookeeper.connect") else _SINGLE_BROKER_DEFAULTS
        texts = {**_OWN_DEFAULTS, **single, **texts}
    return with_variables_replaced(texts)


def _require_known(texts: Mapping[str, str], config_file: str) -> None:
    """Raise `UsageError` for a file that has lines and none of Kafka's configs: it is another file."""
    known = (*KEYS_BY_NAME, JAAS_FILE)
    if texts and not any(name in known or name.startswith("listener.name.") for name in texts):
        raise UsageError(
            "holds no config that a broker knows", file=config_file, cure="name a server.properties file"
        )
