"""The door between Construct and the rest of klog: its errors become klog's own, with a position.

Every binary format module parses and builds through these functions, so nothing that Construct raises
leaves this room.
"""

from __future__ import annotations

import io

import construct as c

from klog.formats.errors import FormatError, UnsupportedFormatError
from klog.formats.primitives import remaining_bytes
from klog.formats.values import Bytes, Value

# What Construct's own blocks let through when a value of the wrong shape is built.
_SHAPE_ERRORS = (AttributeError, KeyError, TypeError, ValueError, OverflowError)

_DAMAGED = "the bytes are damaged, or are of another format; `klog verify` finds the extent"


def parse_all(definition: c.Construct, data: Bytes, what: str, position_bytes: int = 0) -> Value:
    """Parse `data`, all of it. `what` names the thing in errors, `position_bytes` is where `data` starts.

    Raises `FormatError` with the position of the damage; `UnsupportedFormatError` for an unknown version.
    """
    stream = io.BytesIO(data)
    value = parse_next(definition, stream, what, position_bytes)
    left = remaining_bytes(stream)
    if left:
        raise FormatError(
            f"{what}: {left} bytes are left over after its end",
            position_bytes=position_bytes + stream.tell(),
            cure=_DAMAGED,
        )
    return value


def parse_next(definition: c.Construct, stream: io.BytesIO, what: str, position_bytes: int = 0) -> Value:
    """Parse one thing from where the stream stands; errors as in `parse_all`."""
    try:
        return definition.parse_stream(stream)
    except c.SwitchError as error:
        raise UnsupportedFormatError(
            f"{what}: {_words(error)}",
            position_bytes=position_bytes + stream.tell(),
            cure="written by a newer Kafka than this klog knows, or damaged",
        ) from error
    except c.ConstructError as error:
        raise FormatError(
            f"{what}: {_words(error)}", position_bytes=position_bytes + stream.tell(), cure=_DAMAGED
        ) from error


def build(definition: c.Construct, value: Value, what: str) -> bytes:
    """The bytes of a value; raises `FormatError` where the value does not fit the definition."""
    try:
        return bytes(definition.build(value))
    except c.ConstructError as error:
        raise FormatError(f"{what} cannot be written: {_words(error)}") from error
    except _SHAPE_ERRORS as error:
        raise FormatError(f"{what} cannot be written: {type(error).__name__} {error}") from error


def _words(error: c.ConstructError) -> str:
    """Construct's message in one line: the field, then what is wrong with it."""
    first, *rest = str(error).splitlines() or [""]
    field = first.removeprefix("Error in path ").removeprefix("(parsing)").removeprefix("(building)")
    # A documented field is wrapped twice and says its name twice.
    steps = [step.strip() for step in field.split("->") if step.strip()]
    field = ".".join(step for index, step in enumerate(steps) if index == 0 or step != steps[index - 1])
    reason = " ".join(part.strip() for part in rest if part.strip())
    return f"field {field}: {reason}" if field and reason else reason or field or type(error).__name__
