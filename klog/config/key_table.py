"""Reads a table of configs: key, type, default, limits and text of each config.

An entry is a line with columns between `|`, and indented lines with the text that says what the config does:

    log.cleaner.threads | int 1 | at least 0 | cluster-wide
      The number of cleaner threads.

The second column is the type with the default in Kafka's spelling: none for a config without a value, `""`
for an empty one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from klog.config.keys import (
    ConfigKey,
    Dynamic,
    Type,
    Validator,
    Value,
    all_of,
    at_least,
    between,
    gzip_level,
    kafka_version,
    not_empty,
    one_of,
    thread_count,
    throttled_replicas,
)

_NAMED: Final[Mapping[str, Validator]] = {
    "gzip level": gzip_level,
    "Kafka version": kafka_version,
    "not empty": not_empty,
    "thread count": thread_count,
    "throttled replicas": throttled_replicas,
}
_NUMBER: Final = r"(-?[0-9.]+)"
_FORMS: Final[tuple[tuple[re.Pattern[str], Callable[..., Validator]], ...]] = (
    (re.compile(f"at least {_NUMBER}"), lambda least: at_least(_number(least))),
    (re.compile(f"{_NUMBER} to {_NUMBER}"), lambda least, most: between(_number(least), _number(most))),
    (re.compile("one of (.+) in any case"), lambda names: one_of(*names.split(", "), ignore_case=True)),
    (re.compile("one of (.+)"), lambda names: one_of(*names.split(", "))),
    (re.compile("all of (.+)"), lambda names: all_of(*names.split(", "))),
)
_WHERE: Final = {each.value: each for each in Dynamic}


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)


def config_keys(table: str) -> tuple[ConfigKey, ...]:
    """The configs of a table in its order. Raises ValueError for what is no table."""
    entries: list[tuple[str, list[str]]] = []
    for line in table.strip().splitlines():
        if line.startswith(" "):
            entries[-1][1].append(line.strip())
        else:
            entries.append((line, []))
    return tuple(_key(line, " ".join(text)) for line, text in entries)


def _key(line: str, text: str) -> ConfigKey:
    name, typed, *columns = (column.strip() for column in line.split("|"))
    limits = [column for column in columns if column != "internal" and column not in _WHERE]
    where = [_WHERE[column] for column in columns if column in _WHERE]
    if len(limits) > 1 or len(where) > 1:
        raise ValueError(f"the columns of {name} say a thing twice")
    word, _, default = typed.partition(" ")
    bare = ConfigKey(name, Type[word.upper()], None)
    return ConfigKey(
        name,
        bare.type,
        _default(bare, default),
        _validator(limits[0]) if limits else None,
        where[0] if where else Dynamic.READ_ONLY,
        "internal" in columns,
        text,
    )


def _default(key: ConfigKey, text: str) -> Value:
    return key.parse("" if text == '""' else text) if text else None


def _validator(limit: str) -> Validator:
    if limit in _NAMED:
        return _NAMED[limit]
    for form, make in _FORMS:
        if match := form.fullmatch(limit):
            return make(*match.groups())
    raise ValueError(f"{limit!r} is no limit of a config")
