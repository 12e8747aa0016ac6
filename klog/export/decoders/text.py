"""Text: keys and values that are UTF-8."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.export.decoders.decoder import Decoded, DecodeError, decode_each

if TYPE_CHECKING:
    import pyarrow as pa


class StringDecoder:
    """UTF-8 as strings. A value that is not UTF-8 is bad, not repaired: what it was could not be told
    again."""

    @property
    def kind(self) -> pa.DataType:
        """A string."""
        import pyarrow as pa

        return pa.string()

    def decode(self, values: pa.Array) -> Decoded:
        """Without copying, where all is sound."""
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
