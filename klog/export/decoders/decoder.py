"""What all decoders are: they turn a binary column into a typed one, and tell of each row that is not what it
should be. A bad value becomes null with a reason; it never stops the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class DecodeError(Exception):
    """One value is not what it should be; the text says why. Never leaves a decoder."""


class Decoded(NamedTuple):
    """The typed column, null in the rows of `errors`, which says what is wrong with each."""

    values: pa.Array
    errors: dict[int, str]


class Decoder(Protocol):
    """Decodes one column of an export."""

    @property
    def kind(self) -> pa.DataType:
        """The type that its values have."""

    def decode(self, values: pa.Array) -> Decoded:
        """Decode a binary array; null stays null."""


def is_empty(kind: pa.DataType) -> bool:
    """Whether it is a struct without fields (or lists of such), which neither Parquet nor Spark can hold."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        return is_empty(kind.value_type)
    return bool(pa.types.is_struct(kind)) and kind.num_fields == 0


def decode_each(values: pa.Array, kind: pa.DataType, decode: Callable[[bytes], object]) -> Decoded:
    """Decode value by value: `decode` gives what Arrow makes a `kind` of, or raises DecodeError."""
    found: list[object] = []
    errors: dict[int, str] = {}
    for row, value in enumerate(values.to_pylist()):
        try:
            found.append(None if value is None else decode(value))
        except DecodeError as error:
            errors[row] = str(error)
            found.append(None)
    return Decoded(_as_arrow(found, kind, errors), errors)


def _as_arrow(found: list[object], kind: pa.DataType, errors: dict[int, str]) -> pa.Array:
    import pyarrow as pa

    refusals = (pa.ArrowException, OverflowError, ValueError, TypeError)
    try:
        return pa.array(found, kind)
    except refusals:
        for row, value in enumerate(found):
            try:
                pa.array([value], kind)
            except refusals as error:
                found[row] = None
                errors[row] = f"does not fit {kind}: {error}"
        return pa.array(found, kind)
