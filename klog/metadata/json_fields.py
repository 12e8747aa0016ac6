"""Reads and writes the JSON objects that znodes hold."""

from __future__ import annotations

import json
import re
from typing import Final, TypeAlias

from klog.formats.constants import INT32_MAX
from klog.metadata.errors import InvalidZnodeError

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"


_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
# Requests and responses write the length of a text in 16 bits.
_MAX_TEXT_BYTES: Final = 2**15 - 1


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

    def integer(self, name: str, default: int | None = None, *, largest: int = INT32_MAX) -> int:
        return self.as_integer(self._value.get(name, default), name, largest=largest)

    def as_integer(self, value: Json, name: str, *, largest: int = INT32_MAX) -> int:
        """An integer of Java's type with the maximum `largest`.

        Numbers that are too long for a Java int are written as text.
        """
        if isinstance(value, str) and _INTEGER.fullmatch(value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not -largest - 1 <= value <= largest:
            raise self.invalid(f"needs an integer {name} of at most {largest}, not {_short(value)}")
        return value

    def epoch(self, name: str) -> int:
        """An epoch, above which there must be another one."""
        return self.as_integer(self._value.get(name), name, largest=INT32_MAX - 1)

    def text(self, name: str) -> str:
        value = self._value.get(name)
        if not isinstance(value, str):
            raise self.invalid(f"needs a text {name}, not {_short(value)}")
        if len(value.encode()) > _MAX_TEXT_BYTES:
            raise self.invalid(f"has a text {name} of more than {_MAX_TEXT_BYTES} bytes")
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self._value.get(name) is None else self.text(name)

    def mapping(self, name: str) -> dict[str, Json]:
        value = self._value.get(name, {})
        if not isinstance(value, dict):
            raise self.invalid(f"needs an object {name}, not {_short(value)}")
        return value

    def items(self, name: str) -> list[Json]:
        value = self._value.get(name)
        if not isinstance(value, list):
            raise self.invalid(f"needs a list {name}, not {_short(value)}")
        return value

    def broker_ids(self, value: Json, name: str) -> tuple[int, ...]:
        if not isinstance(value, list):
            raise self.invalid(f"needs a list of broker ids {name}, not {_short(value)}")
        found = tuple(self.as_integer(each, name) for each in value)
        if min(found, default=0) < 0:
            raise self.invalid(f"has a negative broker id in {name}: {min(found)}")
        return found


def _short(value: Json) -> str:
    """A value for a message, cut if it is long."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
