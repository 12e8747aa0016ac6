"""A table of configs states what `ConfigKey` holds, and mistakes in it are found when it is read."""

from __future__ import annotations

import pytest

from klog.config.key_table import config_keys
from klog.config.keys import ConfigError, Dynamic, Type


def test_an_entry_has_a_type_a_default_limits_a_place_and_a_text() -> None:
    (key,) = config_keys(
        """
log.cleaner.threads | int 1 | at least 0 | cluster-wide | internal
  The number of
  cleaner threads.
"""
    )
    assert (key.name, key.type, key.default, key.dynamic) == (
        "log.cleaner.threads",
        Type.INT,
        1,
        Dynamic.CLUSTER,
    )
    assert key.internal
    assert key.text == "The number of cleaner threads."
    assert key.validate is not None
    assert key.validate(-1) == "Value must be at least 0"
    assert key.validate(0) is None


def test_no_default_is_no_value_and_quotes_are_the_empty_one() -> None:
    keys = config_keys('a | string\nb | string ""\nc | list ""\nd | list x,y\ne | password')
    assert [key.default for key in keys] == [None, "", (), ("x", "y"), None]
    assert keys[-1].type is Type.PASSWORD
    assert not any(key.text for key in keys)


@pytest.mark.parametrize(
    ("limit", "good", "bad"),
    [
        ("0 to 0.5", 0.5, 0.6),
        ("-2 to 3", -2, 4),
        ("one of a, b", "b", "B"),
        ("one of A, B in any case", "b", "c"),
        ("all of a, b", ("b", "a"), ("a", "c")),
        ("gzip level", -1, 0),
        ("not empty", "x", ""),
    ],
)
def test_a_limit_refuses_what_is_beyond_it(limit: str, good: object, bad: object) -> None:
    (key,) = config_keys(f"name | string | {limit}")
    assert key.validate is not None
    assert key.validate(good) is None
    assert key.validate(bad) is not None


@pytest.mark.parametrize(
    "line",
    ["a | int 1 | at most 3", "a | int 1 | at least 0 | 1 to 2", "a | int x", "a | number 1"],
)
def test_a_mistake_in_a_table_is_found_when_it_is_read(line: str) -> None:
    with pytest.raises((ValueError, KeyError, ConfigError)):
        config_keys(line)
