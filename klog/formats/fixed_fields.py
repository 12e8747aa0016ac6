"""Fields of fixed size that stand beside each other, for readers and writers that must be fast.

Their order and types come from the definitions: `_derived` lists them, and `derive` makes that module.
Nothing else in klog states the place of a field in a file (`tests/formats/test_derived.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from klog.formats._derived import BITS, FIELDS
from klog.formats.function_source import FunctionSource


class Run:
    """Adjacent fields of fixed size. Positions are in bytes from the first of them.

    The length of a field of variable size belongs to the run before it, and has the name of that field.
    """

    def __init__(self, codes: str, names: str) -> None:
        self.names: Final = names.split()
        self.codes: Final = codes[1:]
        self.struct: Final = struct.Struct(codes)
        self.size_bytes: Final = self.struct.size

    def at(self, field: str) -> int:
        """Where a field starts."""
        return struct.calcsize(">" + self.codes[: self.names.index(field)])

    def after(self, field: str) -> int:
        """Where a field ends."""
        return self.through(field).size

    def through(self, last: str) -> struct.Struct:
        """The values of the fields up to `last`."""
        return self.between(self.names[0], last)

    def between(self, first: str, last: str) -> struct.Struct:
        """The values of the fields from `first` to `last`. Its bytes begin with `first`."""
        return struct.Struct(">" + self.codes[self.names.index(first) : self.names.index(last) + 1])

    def writer(self) -> Callable[..., None]:
        """A function that writes all fields, by their names, into a buffer from a position on."""
        names = ", ".join(self.names)
        source = FunctionSource(pack_into=self.struct.pack_into)
        with source.block(f"def write(buffer_, at_, *, {names})"):
            source.add(f"pack_into(buffer_, at_, {names})")
        found: Callable[..., None] = source.function("write")
        return found

    def only(self, *fields: str) -> struct.Struct:
        """The values of some fields. Its bytes begin with the run's first field.

        Raises ValueError if the fields are not given in the file's order, in which the values are.
        """
        places = [*map(self.names.index, fields)]
        if places != sorted(places):
            raise ValueError(f"{fields} stand in another order")
        count = places[-1] + 1
        parts = (
            code if name in fields else f"{struct.calcsize('>' + code)}x"
            for name, code in zip(self.names[:count], self.codes, strict=False)
        )
        return struct.Struct(">" + "".join(parts))


def runs(name: str) -> tuple[Run, ...]:
    """All runs of a definition, by its name in `derive.SOURCES`; a version's name ends with it."""
    return tuple(Run(*run) for run in FIELDS[name])


def run(name: str, field: str = "") -> Run:
    """The run of a definition that has `field`; by default the first."""
    return next(found for found in runs(name) if not field or field in found.names)


def size_bytes(name: str) -> int:
    """The size of all fields of a definition that have a fixed size."""
    return sum(found.size_bytes for found in runs(name))


def mask(name: str, field: str) -> int:
    """The bits of a field within the attributes of a definition."""
    lowest, width = BITS[name][field]
    return (1 << width) - 1 << lowest
