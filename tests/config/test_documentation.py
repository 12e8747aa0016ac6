"""Every config has a text of our own that says what it does."""

from __future__ import annotations

import pytest

from klog.config import broker, topic
from klog.config.documentation import broker_documentation, topic_documentation

TEXTS = [*topic_documentation().items(), *broker_documentation().items()]


def test_every_topic_config_has_a_text_and_no_other_has() -> None:
    assert topic_documentation().keys() == topic.KEYS_BY_NAME.keys()


def test_every_broker_config_has_a_text_and_no_other_has() -> None:
    assert broker_documentation().keys() == broker.KEYS_BY_NAME.keys()


@pytest.mark.parametrize(("name", "text"), TEXTS)
def test_a_text_is_whole_sentences_on_one_line(name: str, text: str) -> None:
    assert text.endswith(".")
    assert text[0].isupper() or text[0].isdigit() or text[0] == "-"
    assert text == " ".join(text.split())
    assert len(text) >= 15


def test_a_text_that_speaks_of_milliseconds_belongs_to_a_config_in_milliseconds() -> None:
    for name, text in topic_documentation().items():
        assert (", in ms" in text or " ms" in text) == name.endswith(".ms"), name


def test_no_two_configs_of_a_kind_have_the_same_text() -> None:
    for texts in (topic_documentation(), broker_documentation()):
        assert len(set(texts.values())) == len(texts)


def test_a_default_of_a_topic_config_says_so_with_its_unit() -> None:
    text = broker_documentation()["log.retention.hours"]
    assert text.startswith("The default of the topic config retention.ms. It is in hours here.")
    assert text.endswith(topic_documentation()["retention.ms"])
