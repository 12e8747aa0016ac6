"""Parses lists of `key=value` as Kafka's tools do."""

from __future__ import annotations

from collections.abc import Sequence

from klog.formats.errors import UsageError


def parse_pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """The keys and values of texts that are one `key=value` each. Raises UsageError."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key.strip() or not equals:
            raise UsageError(f"{option} {text!r} is not KEY=VALUE")
        found[key.strip()] = value
    return found


def split_list(text: str) -> list[str]:
    """The parts between commas; commas within square brackets do not separate (Kafka's `k=[a,b],l=c`)."""
    parts, depth = [""], 0
    for char in text:
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part for part in parts if part]


def without_brackets(value: str) -> str:
    """The value without the square brackets that Kafka's tools need around commas."""
    return value[1:-1] if value.startswith("[") and value.endswith("]") else value
