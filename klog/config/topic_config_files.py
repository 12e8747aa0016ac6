"""Reads the configs of topics from files as backups have them.

Three forms are known: a JSON object of configs by topic (`{"orders": {"retention.ms": "1000"}}`), the JSON of
`klog configs describe --entity-type topics`, and the text of `kafka-configs --describe --entity-type topics`.
Of the last two, only what was set for the topic itself counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from klog.formats.errors import FormatError

_OF_THE_TOPIC: Final = "DYNAMIC_TOPIC_CONFIG"
_TITLE: Final = re.compile(r"(?:Dynamic|All) configs for topic (?P<topic>\S+) are:")
_ENTRY: Final = re.compile(
    r"(?P<name>[a-z0-9.]+)=(?P<value>.*) sensitive=(?:true|false) synonyms=\{(?P<synonyms>.*)\}"
)
_CURE: Final = (
    'a JSON object {"topic": {"config": "value"}}, or the output of klog configs describe --entity-type'
    " topics -o json, or of kafka-configs --describe --entity-type topics"
)

_KEYS: Final = ("entityName", "name")

TopicConfigs = dict[str, dict[str, str]]


class _Found(NamedTuple):
    """Configs of a topic; none if the file names the topic and it has none of its own."""

    topic: str
    configs: dict[str, str]


def parse_topic_configs(text: str) -> TopicConfigs:
    """The configs by topic, in the order of the file. Raises `FormatError`."""
    begins_as_json = text.lstrip()[:1] in ("{", "[")
    by_topic: TopicConfigs = {}
    for found in _of_json(text) if begins_as_json else _of_lines(text):
        by_topic.setdefault(found.topic, {}).update(found.configs)
    return by_topic


def _of_json(text: str) -> Iterator[_Found]:
    values = list(_values(text))
    if len(values) == 1 and isinstance(values[0], list):
        (values,) = values
    if len(values) == 1 and isinstance(values[0], Mapping) and "entityName" not in values[0]:
        yield from _by_topic(values[0])
        return
    yield from _of_rows(values)


def _values(text: str) -> Iterator[Any]:
    """The JSON values of a file: one, or one a line."""
    decoder = json.JSONDecoder()
    at = 0
    while rest := text[at:].lstrip():
        at = len(text) - len(rest)
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"is no JSON: {error}", cure=_CURE) from None
        yield value


def _by_topic(topics: Mapping[str, Any]) -> Iterator[_Found]:
    for topic, configs in topics.items():
        if not isinstance(configs, Mapping):
            raise FormatError(f"the configs of topic {topic} are not a JSON object", cure=_CURE)
        yield _Found(topic, {name: _text(topic, name, value) for name, value in configs.items()})


def _of_rows(rows: Iterable[Any]) -> Iterator[_Found]:
    for row in rows:
        if not isinstance(row, Mapping) or not all(isinstance(row.get(key), str) for key in _KEYS):
            raise FormatError(f"{json.dumps(row)[:80]} is not the config of a topic", cure=_CURE)
        if row.get("entityType", "topics") == "topics" and row.get("source", _OF_THE_TOPIC) == _OF_THE_TOPIC:
            topic, name = row["entityName"], row["name"]
            yield _Found(topic, {name: _text(topic, name, row.get("value"))})


def _text(topic: str, name: str, value: object) -> str:
    """A value as Kafka writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise FormatError(f"config {name} of topic {topic} has no value", cure=_CURE)


def _of_lines(text: str) -> Iterator[_Found]:
    topic: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        title, entry = _TITLE.fullmatch(line.strip()), _ENTRY.fullmatch(line.strip())
        if title is not None:
            topic = title["topic"]
            yield _Found(topic, {})
        elif entry is not None and topic is not None:
            if entry["synonyms"].startswith(f"{_OF_THE_TOPIC}:"):
                yield _Found(topic, {entry["name"]: entry["value"]})
        elif line.strip():
            raise FormatError(f"line {number} is not understood: {line.strip()[:80]}", cure=_CURE)
