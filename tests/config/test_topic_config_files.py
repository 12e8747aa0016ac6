"""Files with the configs of topics are read in the forms that people have them in."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.config.topic_config_files import parse_topic_configs
from klog.formats.errors import FormatError

OWN = "DYNAMIC_TOPIC_CONFIG:"
POLICY = "cleanup.policy=compact,delete"
KAFKAS = f"""\
Dynamic configs for topic orders are:
  {POLICY} sensitive=false synonyms={{{OWN}{POLICY}, DEFAULT_CONFIG:log.cleanup.policy=delete}}
  retention.ms=7 sensitive=false synonyms={{{OWN}retention.ms=7}}
Dynamic configs for topic none are:
All configs for topic all are:
  compression.type=producer sensitive=false synonyms={{DEFAULT_CONFIG:compression.type=producer}}
  segment.bytes=100 sensitive=false synonyms={{{OWN}segment.bytes=100, DEFAULT_CONFIG:log.segment.bytes=1}}
"""
names = st.text("abc.", min_size=1, max_size=5)
configs = st.dictionaries(names, st.dictionaries(names, st.text(max_size=5)), max_size=3)


def rows(configs: dict[str, dict[str, str]]) -> list[dict[str, str]]:
    return [
        {"entityType": "topics", "entityName": topic, "name": name, "value": value, "source": source}
        for topic, own in configs.items()
        for name, value, source in [
            *((name, value, "DYNAMIC_TOPIC_CONFIG") for name, value in own.items()),
            ("of.the.broker", "1", "DYNAMIC_BROKER_CONFIG"),
        ]
    ]


@given(configs)
def test_all_forms_of_json_say_the_same(configs: dict[str, dict[str, str]]) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in rows(configs))
    assert parse_topic_configs(json.dumps(configs)) == configs
    without_empty = {topic: own for topic, own in configs.items() if own}  # a row is a config
    assert parse_topic_configs(json.dumps(rows(configs), indent=2)) == without_empty
    assert parse_topic_configs(lines) == without_empty


def test_what_kafka_configs_prints_is_read() -> None:
    assert parse_topic_configs(KAFKAS) == {
        "orders": {"cleanup.policy": "compact,delete", "retention.ms": "7"},
        "none": {},
        "all": {"segment.bytes": "100"},
    }


def test_numbers_and_truth_values_become_texts() -> None:
    text = '{"t": {"retention.ms": 5, "preallocate": true, "min.cleanable.dirty.ratio": 0.5}}'
    found = {"retention.ms": "5", "preallocate": "true", "min.cleanable.dirty.ratio": "0.5"}
    assert parse_topic_configs(text) == {"t": found}


def test_nothing_is_nothing() -> None:
    assert parse_topic_configs("") == parse_topic_configs("\n") == parse_topic_configs("{}") == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON"),
        ('{"t": 5}', "the configs of topic t are not a JSON object"),
        ('{"t": {"retention.ms": null}}', "config retention.ms of topic t has no value"),
        ('[{"entityName": "t"}]', "is not the config of a topic"),
        ('[{"entityName": [], "name": "a", "value": "b"}]', "is not the config of a topic"),
        ("[" * 100_000, "is no JSON"),
        ("[5]", "is not the config of a topic"),
        ("retention.ms=5", "line 1 is not understood: retention.ms=5"),
    ],
)
def test_anything_else_is_a_clear_error(text: str, said: str) -> None:
    with pytest.raises(FormatError, match=said) as caught:
        parse_topic_configs(text)
    assert "klog configs describe" in str(caught.value)


@given(st.text())
def test_no_text_crashes_it(text: str) -> None:
    with suppress(FormatError):
        parse_topic_configs(text)
