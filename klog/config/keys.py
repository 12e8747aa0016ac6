"""Defines a config: its name, type, default and limits. Parses and writes its values.

Texts are parsed and written as Kafka's `ConfigDef` does. A value from a properties file, a znode or a request
therefore means the same as in Kafka, and is written in the same spelling.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Final

from klog.config.kafka_versions import release_of
from klog.formats.constants import INT64_MAX
from klog.formats.errors import UsageError

INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1

# The syntax of Java's `Double.parseDouble`, without its hexadecimal form.
_DOUBLE: Final = re.compile(
    r"([+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?=[fFdD]?$)))[fFdD]?"
)

Value = bool | int | float | str | tuple[str, ...] | None
Validator = Callable[[Any], str | None]


class Type(IntEnum):
    """The type of a config's value. The numbers are those of DescribeConfigs (KIP-226)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Dynamic(Enum):
    """Where a broker config can be changed while the broker runs (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER = "cluster-wide"


class ConfigError(UsageError):
    """The value of a config is invalid. `key` is the name of the config."""

    def __init__(self, key: str, value: str, why: str, *, cure: str | None = None) -> None:
        super().__init__(f"Invalid value {value} for configuration {key}: {why}", cure=cure)
        self.key = key


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One config.

    `validate` returns what is wrong with a value, or None. Kafka does not document `internal` configs. `text`
    says what the config does, in our own words; a default of a topic config has none.
    """

    name: str
    type: Type
    default: Value
    validate: Validator | None = None
    dynamic: Dynamic = Dynamic.READ_ONLY
    internal: bool = False
    text: str = ""

    @property
    def sensitive(self) -> bool:
        """Whether the value must never be shown."""
        return self.type is Type.PASSWORD

    def parse(self, text: str) -> Value:
        """Parses a text. Raises `ConfigError`."""
        value = _PARSERS[self.type](self.name, text)
        wrong = self.validate(value) if self.validate is not None else None
        if wrong is not None:
            raise ConfigError(self.name, text, wrong)
        return value


def text_of(value: Value) -> str | None:
    """A value in Kafka's spelling, as in DescribeConfigs; None for a config without a value."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _java_double(value)
    return str(value)


def _java_double(value: float) -> str:
    """The text of Java's `Double.toString`: with an exponent from 10,000,000 on and below 0.001."""
    text = repr(value)
    if not math.isfinite(value):
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(text, "NaN")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return text
    sign, digits, exponent = Decimal(text).normalize().as_tuple()
    if not isinstance(exponent, int):
        return text
    figures = "".join(map(str, digits))
    rest = figures[1:] or "0"
    return f"{'-' if sign else ''}{figures[0]}.{rest}E{exponent + len(figures) - 1}"


def _parse_boolean(key: str, text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ConfigError(key, text, "Expected value to be either true or false")
    return lowered == "true"


def _integer(maximum: int, word: str) -> Callable[[str, str], int]:
    def parse(key: str, text: str) -> int:
        stripped = text.strip()
        if re.fullmatch(r"[+-]?[0-9]+", stripped) is None or not -maximum - 1 <= int(stripped) <= maximum:
            raise ConfigError(key, text, f"Not a number of type {word}")
        return int(stripped)

    return parse


def _parse_double(key: str, text: str) -> float:
    match = _DOUBLE.fullmatch(text.strip())
    if match is None:
        raise ConfigError(key, text, "Not a number of type DOUBLE")
    return float(match[1])


def _parse_list(_key: str, text: str) -> tuple[str, ...]:
    stripped = text.strip()
    return tuple(re.split(r"\s*,\s*", stripped)) if stripped else ()


def _parse_text(_key: str, text: str) -> str:
    return text.strip()


_PARSERS: Final[dict[Type, Callable[[str, str], Value]]] = {
    Type.BOOLEAN: _parse_boolean,
    Type.STRING: _parse_text,
    Type.INT: _integer(INT32_MAX, "INT"),
    Type.SHORT: _integer(INT16_MAX, "SHORT"),
    Type.LONG: _integer(INT64_MAX, "LONG"),
    Type.DOUBLE: _parse_double,
    Type.LIST: _parse_list,
    Type.CLASS: _parse_text,
    Type.PASSWORD: _parse_text,
}


def at_least(minimum: float) -> Validator:
    """Rejects numbers below `minimum`."""
    return lambda value: f"Value must be at least {minimum}" if value < minimum else None


def between(minimum: float, maximum: float) -> Validator:
    """Rejects numbers outside `minimum` to `maximum`."""

    def validate(value: float) -> str | None:
        if value < minimum:
            return f"Value must be at least {minimum}"
        return f"Value must be no more than {maximum}" if value > maximum else None

    return validate


def one_of(*allowed: str, ignore_case: bool = False) -> Validator:
    """Rejects strings that are not in `allowed`."""

    def validate(value: str) -> str | None:
        found = value.upper() if ignore_case else value
        return None if found in allowed else f"String must be one of: {', '.join(allowed)}"

    return validate


def all_of(*allowed: str) -> Validator:
    """Rejects lists with a member that is not in `allowed`."""

    def validate(values: Iterable[str]) -> str | None:
        wrong = [value for value in values if value not in allowed]
        return f"String must be one of: {', '.join(allowed)}" if wrong else None

    return validate


def not_empty(value: str) -> str | None:
    """Rejects an empty string."""
    return None if value else "String must be non-empty"


def gzip_level(value: int) -> str | None:
    """Rejects numbers that are not a gzip level: 1 to 9, or -1 for the default."""
    return None if value == -1 or 1 <= value <= 9 else "Value must be between 1 and 9 or equal to -1"


def kafka_version(value: str) -> str | None:
    """Rejects texts that are not a version of Kafka (`2.8`, `3.0-IV1`, `0.10.2.1`)."""
    return None if release_of(value) is not None else f"Version {value} is not a valid version"


def thread_count(value: int) -> str | None:
    """Rejects numbers of threads that are neither -1 nor positive."""
    return None if value == -1 or value > 0 else "Value can be -1 or greater than 0"


def throttled_replicas(values: Iterable[str]) -> str | None:
    """Rejects lists that are neither `*` nor members of the form `partition:broker`."""
    members = list(values)
    if members == ["*"] or all(re.fullmatch(r"[0-9]+:[0-9]+", member) for member in members):
        return None
    return f"{','.join(members)} must be the literal '*' or a list of replicas in the form partition:broker"
