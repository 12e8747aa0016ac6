"""What each config does, in our own words, for DescribeConfigs (KIP-569) and `klog configs describe --doc`.

A text is a line `name: text` with continuation lines that begin with a space. Broker configs that are
defaults of topic configs have the topic config's text.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from klog.config.documentation import (
    cluster,
    groups,
    log,
    network,
    other_modes,
    replication,
    security,
    topic,
)
from klog.config.topic import SYNONYMS

_BROKER_MODULES: Final = (cluster, groups, log, network, other_modes, replication, security)
_UNITS: Final = {1: "", 60_000: " It is in minutes here.", 3_600_000: " It is in hours here."}


@cache
def topic_documentation() -> Mapping[str, str]:
    """The text of each topic config."""
    return MappingProxyType(_parsed(topic.TEXT))


@cache
def broker_documentation() -> Mapping[str, str]:
    """The text of each broker config."""
    texts: dict[str, str] = {}
    for module in _BROKER_MODULES:
        texts |= _parsed(module.TEXT)
    for name, text in topic_documentation().items():
        for synonym in SYNONYMS[name]:
            unit = _UNITS[synonym.factor]
            texts.setdefault(synonym.broker_config, f"The default of the topic config {name}.{unit} {text}")
    return MappingProxyType(texts)


def _parsed(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    name = ""
    for line in text.strip().splitlines():
        if line.startswith(" "):
            found[name] += " " + line.strip()
        else:
            name, _, first = line.partition(": ")
            found[name] = first
    return found
