"""What functions that read and write records are made of: the order and the types of fields, as plain values.

`definition_shapes` makes them of definitions. Construct is not loaded.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from klog.formats.values import Value


class Fixed(NamedTuple):
    """A field of fixed size: its code of `struct`, `uuid` or `bool` if its value is one, what it must be."""

    code: str
    kind: str = ""
    constant: Value = None

    @property
    def is_number(self) -> bool:
        """Whether its value is what `struct` gives, and may be any number."""
        return self.kind == "" and self.constant is None and not self.code.endswith("s")


class Base128(NamedTuple):
    """A number of at most so many bits. Its form is `zigzag`, `plus one`, or empty for the number itself."""

    bits: int
    form: str = ""


class Sized(NamedTuple):
    """Bytes or a text after their length. If it may be null, the length is then negative."""

    length: Fixed | Base128
    is_text: bool
    null: bool


class Array(NamedTuple):
    """Items after their count. If it may be null, the count is then negative."""

    length: Fixed | Base128
    item: Shape
    null: bool


class Tagged(NamedTuple):
    """Optional fields: the tag, the name and the shape of each that is known."""

    known: tuple[tuple[int, str, Shape], ...]


class Struct(NamedTuple):
    """Adjacent fields, with their names. Tagged fields are the last."""

    fields: tuple[tuple[str, Shape], ...]


class Nullable(NamedTuple):
    """A byte, 1 before the fields, or `null_mark` without fields."""

    fields: Struct
    null_mark: int


Shape: TypeAlias = Fixed | Base128 | Sized | Array | Tagged | Struct | Nullable

INT8: Final = Fixed("b")
INT16: Final = Fixed("h")
INT32: Final = Fixed("i")
INT64: Final = Fixed("q")
UUID: Final = Fixed("16s", "uuid")
COMPACT: Final = Base128(32, "plus one")
STRING: Final = Sized(INT16, is_text=True, null=False)
NULLABLE_STRING: Final = Sized(INT16, is_text=True, null=True)
COMPACT_STRING: Final = Sized(COMPACT, is_text=True, null=False)
COMPACT_NULLABLE_STRING: Final = Sized(COMPACT, is_text=True, null=True)
BYTES: Final = Sized(INT32, is_text=False, null=False)
COMPACT_BYTES: Final = Sized(COMPACT, is_text=False, null=False)
NO_TAGGED: Final = Tagged(())
