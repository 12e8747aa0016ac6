"""`key=value` lists as Kafka's tools take them."""

from __future__ import annotations

from collections.abc import Sequence

from klog.formats.errors import UsageError


def parse_pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """One `key=value` a text. Raises UsageError."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key.strip() or not equals:
            raise UsageError(f"{option} {text!r} is no KEY=VALUE")
        found[key.strip()] = value
    return found


def split_list(text: str) -> list[str]:
    """The parts between commas; commas within square brackets do not count (Kafka's `k=[a,b],l=c`)."""
    parts, depth = [""], 0
    for char in text:
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part for part in parts if part]


def without_brackets(value: str) -> str:
    """`[a,b]` is Kafka's way to write a value with commas."""
    return value[1:-1] if value.startswith("[") and value.endswith("]") else value
