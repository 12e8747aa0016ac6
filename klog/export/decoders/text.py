"""Decodes keys and values that are UTF-8 text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.export.decoders.decoder import Decoded, DecodeError, decode_each

if TYPE_CHECKING:
    import pyarrow as pa


class StringDecoder:
    """Decodes UTF-8 to strings. A value that is not UTF-8 is bad: replacing bytes would lose what it was."""

    @property
    def kind(self) -> pa.DataType:
        """The type string."""
        import pyarrow as pa

        return pa.string()

    def decode(self, values: pa.Array) -> Decoded:
        """Decode a binary array, without a copy if all values are valid."""
        import pyarrow as pa

        try:
            return Decoded(values.cast(pa.string()), {})
        except pa.ArrowInvalid:
            return decode_each(values, pa.string(), decode_utf8)


def decode_utf8(value: bytes) -> str:
    """The text. Raises DecodeError."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"not UTF-8: {error.reason} at byte {error.start}") from None
