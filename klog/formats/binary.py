"""Parses and builds with Construct definitions. Construct's errors become klog's own, with a position.

Every binary format module uses these functions, so no exception of Construct leaves this package.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial

import construct as c

from klog.formats.errors import CorruptRecordError, FormatError, UnsupportedFormatError
from klog.formats.primitives import remaining_bytes
from klog.formats.values import Bytes, Value

# Construct passes these on if it builds a value of the wrong shape.
_SHAPE_ERRORS = (AttributeError, KeyError, TypeError, ValueError, OverflowError)

_DAMAGED = "the bytes are damaged, or are of another format; `klog verify` finds the extent"


def parse_all(definition: c.Construct, data: Bytes, what: str, position_bytes: int = 0) -> Value:
    """Parse all of `data`. `what` is the name in errors, `position_bytes` the position of `data` in its file.

    Raises `FormatError` with the position of the damage; `UnsupportedFormatError` for an unknown version.
    """
    stream = io.BytesIO(data)
    value = parse_next(definition, stream, what, position_bytes)
    require_end(stream, what, position_bytes)
    return value


def require_end(stream: io.BytesIO, what: str, position_bytes: int) -> None:
    """Raise `FormatError` if bytes are left after what was parsed."""
    left = remaining_bytes(stream)
    if left:
        raise FormatError(
            f"{what}: {left} bytes are left over after its end",
            position_bytes=position_bytes + stream.tell(),
            cure=_DAMAGED,
        )


def parse_next(definition: c.Construct, stream: io.BytesIO, what: str, position_bytes: int = 0) -> Value:
    """Parse one value from the position of the stream; errors as in `parse_all`."""
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


def require_crc(what: str, stored: int, computed: int, position_bytes: int) -> None:
    """Raise `CorruptRecordError` if a stored checksum, at that position, is not the computed one."""
    if computed != stored:
        raise CorruptRecordError(
            f"{what}: crc is {stored}, but its bytes give {computed}",
            position_bytes=position_bytes,
            cure=f"the {what} was altered after it was written; a replica may have it whole",
        )


def build(definition: c.Construct, value: Value, what: str) -> bytes:
    """The bytes of a value. Raises `FormatError` if the value does not fit the definition."""
    try:
        return bytes(definition.build(value))
    except c.ConstructError as error:
        raise FormatError(f"{what} cannot be written: {_words(error)}") from error
    except _SHAPE_ERRORS as error:
        raise FormatError(f"{what} cannot be written: {type(error).__name__} {error}") from error


def whole(
    definition: c.Construct, what: str
) -> tuple[Callable[[Bytes], c.Container], Callable[[c.Container], bytes]]:
    """`parse_all` and `build` of one definition."""
    return partial(parse_all, definition, what=what), partial(build, definition, what=what)


def _words(error: c.ConstructError) -> str:
    """Construct's message in one line: the field, then the problem."""
    first, *rest = str(error).splitlines() or [""]
    field = first.removeprefix("Error in path ").removeprefix("(parsing)").removeprefix("(building)")
    # A documented field is wrapped twice and its name comes twice.
    steps = [step.strip() for step in field.split("->") if step.strip()]
    field = ".".join(step for index, step in enumerate(steps) if index == 0 or step != steps[index - 1])
    reason = " ".join(part.strip() for part in rest if part.strip())
    return f"field {field}: {reason}" if field and reason else reason or field or type(error).__name__
