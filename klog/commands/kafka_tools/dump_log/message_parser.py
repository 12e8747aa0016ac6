"""The type of what prints keys and values of records in Kafka's dump."""

from __future__ import annotations

from collections.abc import Callable

# (key, value, offset) -> texts of key and value, None for no text. Raises KlogError if the tool fails.
MessageParser = Callable[[bytes | None, bytes | None, int], tuple[str | None, str | None]]
