"""What each config does, in our own words, for DescribeConfigs (KIP-569) and `klog configs describe --doc`.

The texts stand in the tables of the configs. Broker configs that are defaults of topic configs have the topic
config's text.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from klog.config.broker import KEYS_BY_NAME
from klog.config.topic import SYNONYMS
from klog.config.topic_keys import KEYS

_UNITS: Final = {1: "", 60_000: " It is in minutes here.", 3_600_000: " It is in hours here."}


@cache
def topic_documentation() -> Mapping[str, str]:
    """The text of each topic config."""
    return MappingProxyType({key.name: key.text for key in KEYS if key.text})


@cache
def broker_documentation() -> Mapping[str, str]:
    """The text of each broker config."""
    texts = {key.name: key.text for key in KEYS_BY_NAME.values() if key.text}
    for name, text in topic_documentation().items():
        for synonym in SYNONYMS[name]:
            unit = _UNITS[synonym.factor]
            texts.setdefault(synonym.broker_config, f"The default of the topic config {name}.{unit} {text}")
    return MappingProxyType(texts)
