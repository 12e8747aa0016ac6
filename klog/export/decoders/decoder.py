"""The interface of decoders, which turn a binary column into a typed one.

A bad value becomes null, and the decoder reports the reason; the other values are decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class DecodeError(Exception):
    """One value cannot be decoded; the text says why. A decoder never raises it."""


class Decoded(NamedTuple):
    """The typed column; the rows of `errors` are null, and it says why."""

    values: pa.Array
    errors: dict[int, str]


class Decoder(Protocol):
    """Decodes one column of an export."""

    @property
    def kind(self) -> pa.DataType:
        """The type of the decoded values."""

    def decode(self, values: pa.Array) -> Decoded:
        """Decode a binary array. Null stays null."""


def is_empty(kind: pa.DataType) -> bool:
    """Whether it is a struct without fields (or a list of such), which neither Parquet nor Spark can have."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        return is_empty(kind.value_type)
    return bool(pa.types.is_struct(kind)) and kind.num_fields == 0


def decode_each(values: pa.Array, kind: pa.DataType, decode: Callable[[bytes], object]) -> Decoded:
    """Decode each value with `decode`, which returns a value for Arrow's `kind` or raises DecodeError."""
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
