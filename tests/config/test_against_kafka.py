"""klog's tables of configs say what Kafka 3.9 says of itself."""

from __future__ import annotations

import pytest

from klog.config import broker, topic
from klog.config.keys import Dynamic, text_of
from tests.peers.kafka import KafkaPeer

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def kafka_says(kafka3: KafkaPeer) -> dict[str, dict[str, tuple[str, str, bool]]]:
    """kind -> config name -> (type, default, dynamic)."""
    listed: dict[str, dict[str, tuple[str, str, bool]]] = {"broker": {}, "topic": {}}
    for line in kafka3.java("ConfigList").stdout.decode().splitlines():
        kind, name, type_, default, dynamic = line.split("\t")
        listed[kind][name] = (type_, default, dynamic == "true")
    return listed


def test_broker_configs_have_kafkas_names_types_defaults_and_mutability(kafka_says) -> None:
    ours = {
        key.name: (key.type.name, text_of(key.default) or "", key.dynamic is not Dynamic.READ_ONLY)
        for key in broker.KEYS_BY_NAME.values()
    }
    assert len(ours) > 300
    assert ours == kafka_says["broker"]


def test_topic_configs_have_kafkas_names_types_and_defaults(kafka_says) -> None:
    ours = {key.name: (key.type.name, text_of(key.default) or "") for key in topic.KEYS_BY_NAME.values()}
    assert ours == {name: (type_, default) for name, (type_, default, _) in kafka_says["topic"].items()}
