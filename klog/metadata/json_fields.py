"""Reads and writes the JSON objects that znodes hold."""

from __future__ import annotations

import json
from typing import TypeAlias

from klog.metadata.errors import InvalidZnodeError

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"


def encode_json(value: object) -> bytes:
    """A value as Kafka writes JSON: without spaces, not escaped."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class Fields:
    """The fields of a node's JSON object, with checks of their types."""

    def __init__(self, data: bytes | None, path: str) -> None:
        self._path = path
        try:
            value: Json = json.loads((data or b"null").decode())
            # A lone surrogate, which JSON can escape, is no text that could be sent or written.
            json.dumps(value, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise self.invalid(f"is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise self.invalid("holds no JSON object")
        self._value = value

    def invalid(self, what: str) -> InvalidZnodeError:
        return InvalidZnodeError(f"znode {self._path} {what}")

    def raw(self, name: str) -> Json:
        return self._value.get(name)

    def integer(self, name: str, default: int | None = None) -> int:
        return self.as_integer(self._value.get(name, default), name)

    def as_integer(self, value: Json, name: str) -> int:
        """An integer. Numbers that are too long for a Java int are written as text."""
        if isinstance(value, str) and value.lstrip("-").isdigit():
            return int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.invalid(f"needs an integer {name}, not {value!r}")
        return value

    def text(self, name: str) -> str:
        value = self._value.get(name)
        if not isinstance(value, str):
            raise self.invalid(f"needs a text {name}, not {value!r}")
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self._value.get(name) is None else self.text(name)

    def mapping(self, name: str) -> dict[str, Json]:
        value = self._value.get(name, {})
        if not isinstance(value, dict):
            raise self.invalid(f"needs an object {name}, not {value!r}")
        return value

    def items(self, name: str) -> list[Json]:
        value = self._value.get(name)
        if not isinstance(value, list):
            raise self.invalid(f"needs a list {name}, not {value!r}")
        return value

    def broker_ids(self, value: Json, name: str) -> tuple[int, ...]:
        if not isinstance(value, list):
            raise self.invalid(f"needs a list of broker ids {name}, not {value!r}")
        return tuple(self.as_integer(each, name) for each in value)
