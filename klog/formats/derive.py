"""Makes what production needs of the definitions: places, types and order of fields, readers and writers.

`python -m klog.formats.derive` writes `_derived.py`, and `kernel/_derived.pxi` for the compiled modules,
which need the numbers at compile time; and `_records.py`, the functions that read and write the records of
coordinators (`derive_records`). They are in the repository: so a build needs neither Construct nor the
codecs, an install without a build has the same and does not load Construct for it, and a review shows which
bytes a change moves. Tests hold all of them equal to the definitions.

Change a definition first, run this module, then use the new names in `constants` and `packed`.
"""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import construct as c

from klog.formats import _derived, constants, derive_compiled, derive_records
from klog.formats import primitives as p
from klog.formats import structures as s
from klog.formats.checkpoint_files import LeaderEpochFile, OffsetCheckpointFile
from klog.formats.consumer_offsets import Key as GroupKey
from klog.formats.consumer_offsets import OffsetCommitValue
from klog.formats.control_records import ControlKey, EndTxnMarker
from klog.formats.message_set import Attributes as MessageAttributes
from klog.formats.message_set import Message
from klog.formats.offset_index import Entry as OffsetIndexEntry
from klog.formats.producer_snapshot import ProducerSnapshot
from klog.formats.record_batch import Attributes, RecordBatch
from klog.formats.text_blocks import TextLine, Word
from klog.formats.time_index import Entry as TimeIndexEntry
from klog.formats.transaction_index import AbortedTxn
from klog.formats.zookeeper_files import LogEntry as ZooKeeperLogEntry
from klog.formats.zookeeper_files import SnapshotNode as ZooKeeperSnapshotNode
from klog.formats.zookeeper_files import TransactionDigest as ZooKeeperTransactionDigest
from klog.formats.zookeeper_files import TransactionHead as ZooKeeperTransactionHead


class Source(NamedTuple):
    """A definition, the fields that choose its form, and the versions of it that are derived."""

    definition: c.Construct
    given: Mapping[str, int] = MappingProxyType({})
    versions: tuple[int, ...] = ()


SOURCES: Final[dict[str, Source]] = {
    "RecordBatch": Source(RecordBatch),
    "Message0": Source(Message, {"magic": 0}),
    "Message1": Source(Message, {"magic": 1}),
    "OffsetIndexEntry": Source(OffsetIndexEntry),
    "TimeIndexEntry": Source(TimeIndexEntry),
    "AbortedTxn": Source(AbortedTxn),
    "ProducerSnapshot": Source(ProducerSnapshot),
    "ControlKey": Source(ControlKey),
    "EndTxnMarker": Source(EndTxnMarker),
    "GroupKey": Source(GroupKey, versions=(1,)),
    "OffsetCommitValue": Source(OffsetCommitValue, versions=(0, 1, 2, 3)),
    "ZooKeeperSnapshotNode": Source(ZooKeeperSnapshotNode),
    "ZooKeeperLogEntry": Source(ZooKeeperLogEntry),
    "ZooKeeperTransactionHead": Source(ZooKeeperTransactionHead),
    "ZooKeeperTransactionDigest": Source(ZooKeeperTransactionDigest),
}
"""What is derived, by the name in `_derived.FIELDS`. A version's name ends with it: `OffsetCommitValue.3`."""
LINE_SOURCES: Final = {"OffsetCheckpointFile": OffsetCheckpointFile, "LeaderEpochFile": LeaderEpochFile}
BIT_SOURCES: Final = {"RecordBatch": Attributes, "Message": MessageAttributes}

Runs = tuple[tuple[str, str], ...]
"""Runs of fields, each as the format of `struct` and the names."""

# The numbers that the compiled modules may use, by the beginnings and ends of their names in `constants`.
_COMPILED: Final = ("BATCH_", "MESSAGE_", "ENTRY_", "MAGIC", "MIN_", "COMMIT_", "CONTROL_", "INT32_MAX")
_COMPILED_ENDS: Final = ("_MASK", "_BIT")


def fields() -> dict[str, Runs]:
    """The runs of fields of fixed size in all definitions."""
    found: dict[str, Runs] = {}
    for name, source in SOURCES.items():
        forms = {name: source.definition}
        if isinstance(source.definition, s.Versioned):
            forms = {f"{name}.{version}": source.definition.versions[version] for version in source.versions}
        for form_name, form in forms.items():
            walk = _Walk(source.given)
            if isinstance(source.definition, s.Versioned):
                walk.take("version", c.Int16sb)
            walk.walk("", form)
            found |= {form_name + below: runs for below, runs in walk.taken().items()}
    return found


def bits() -> dict[str, dict[str, tuple[int, int]]]:
    """The lowest bit and the width of each field of attributes."""
    return {name: dict(_bits(definition)) for name, definition in BIT_SOURCES.items()}


def text_lines() -> dict[str, tuple[str, str]]:
    """The types and names of the words of each line in the text files."""
    return {
        f"{name}.{field}": (" ".join(types), " ".join(names))
        for name, definition in LINE_SOURCES.items()
        for field, line in _lines(definition)
        for types, names in [
            zip(*((_of(w).text_type.name, w.name or field) for w in line.words), strict=True)
        ]
    }


def _lines(definition: c.Struct) -> Iterator[tuple[str, TextLine]]:
    for part in definition.subcons:
        yield part.name, _of(part, TextLine)


def _of(con: c.Construct, kind: type = Word) -> c.Construct:
    """The construct of a kind that others wrap."""
    return con if isinstance(con, kind) else _of(con.subcon, kind)


def _bits(definition: c.Construct) -> Iterator[tuple[str, tuple[int, int]]]:
    lowest = 8 * int(definition.sizeof())
    for field in definition.subcon.subcons:
        width = int(field.sizeof())
        lowest -= width
        yield field.name, (lowest, width)


class _Walk:
    """One pass over a definition. `given` are the values of the fields that choose its form."""

    def __init__(self, given: Mapping[str, int]) -> None:
        self.given = given
        self.runs: list[list[tuple[str, str]]] = [[]]
        self.below: dict[str, Runs] = {}

    def taken(self) -> dict[str, Runs]:
        """The runs that were found, and those of items of its arrays by the array's name."""
        columns = (tuple(zip(*run, strict=True)) for run in self.runs if run)
        return {"": tuple((">" + "".join(codes), " ".join(names)) for names, codes in columns), **self.below}

    def take(self, name: str, con: c.Construct) -> bool:
        """Add a field, if it has a fixed size."""
        code = _code(con)
        if code is not None:
            self.runs[-1].append((name, code))
        return code is not None

    def walk(self, name: str, con: c.Construct) -> None:
        """Add the fields of a definition."""
        while isinstance(con, (c.Renamed, s.Bounded)):
            name, con = con.name or name, con.subcon
        if isinstance(con, c.Struct):
            for subcon in con.subcons:
                self.walk("", subcon)
        elif isinstance(con, c.IfThenElse):
            self._choose(name, con)
        elif con is not c.Pass and not self.take(name, con):
            length = getattr(con, "length", None)
            if length is not None:
                self.take(name, length)
            self.runs.append([])
            self._items(name, con)

    def _choose(self, name: str, con: c.IfThenElse) -> None:
        try:
            self.walk(name, con.thensubcon if con.condfunc(c.Container(self.given)) else con.elsesubcon)
        except AttributeError:  # the form is chosen by a field whose value is not given
            self.runs.append([])

    def _items(self, name: str, con: c.Construct) -> None:
        if isinstance(con, (p.SizedArray, p.CountedArray)):
            walk = _Walk(self.given)
            walk.walk("", con.subcon)
            # Items that are no structs have no names.
            found = {below: runs for below, runs in walk.taken().items() if runs and runs[0][1]}
            self.below |= {f".{name}{below}": runs for below, runs in found.items()}


def _code(con: c.Construct) -> str | None:
    """The letter of `struct` for a field; None if its size is not fixed."""
    if isinstance(con, (c.Transformed, c.Restreamed)):
        return {1: "B", 2: "h"}[int(con.sizeof())]
    if isinstance(con, c.FormatField):
        return {"l": "i", "L": "I"}.get(con.fmtstr[-1], str(con.fmtstr[-1]))
    fixed = isinstance(con, (c.Const, c.Validator, c.Enum, c.Renamed))
    return _code(con.subcon) if fixed else None


def module_text() -> str:
    """The text of `_derived.py`."""
    lines = [
        '"""What `fixed_fields` gives out. Made by `python -m klog.formats.derive`: do not edit."""',
        "",
        "# ruff: noqa: E501",
        "# fmt: off",
        "# Runs of adjacent fields of fixed size: format of `struct`, names.",
        "FIELDS: dict[str, tuple[tuple[str, str], ...]] = {",
    ]
    for name, found in fields().items():
        lines += [
            f'    "{name}": (',
            *(f'        ("{codes}", "{names}"),' for codes, names in found),
            "    ),",
        ]
    lines += ["}", "# Fields of attributes: lowest bit, width."]
    lines += ["BITS: dict[str, dict[str, tuple[int, int]]] = {"]
    for name, places in bits().items():
        lines += [
            f'    "{name}": {{',
            *(f'        "{field}": {place},' for field, place in places.items()),
            "    },",
        ]
    lines += ["}", "# Words of lines: types, names.", "LINES: dict[str, tuple[str, str]] = {"]
    lines += [f'    "{name}": ("{types}", "{names}"),' for name, (types, names) in text_lines().items()]
    return "\n".join([*lines, "}", ""])


def include_text() -> str:
    """The text of `kernel/_derived.pxi`, from the numbers in `constants`."""
    numbers = {
        name: value
        for name, value in vars(constants).items()
        if isinstance(value, int) and (name.startswith(_COMPILED) or name.endswith(_COMPILED_ENDS))
    }
    lines = [
        "# The numbers of `constants` that compiled modules need at compile time. Made by",
        "# `python -m klog.formats.derive`: do not edit. The import fails unless both are equal.",
        "",
        "from klog.formats import constants as _python",
        "",
        "cdef enum:",
        *(f"    {name} = {value}" for name, value in numbers.items()),
        "",
        "for _name, _number in dict(",
        *(f"    {line}" for line in textwrap.wrap(", ".join(f"{name}={name}" for name in numbers), 100)),
        ").items():",
        '    assert getattr(_python, _name) == _number, f"{_name}: build the compiled modules again"',
    ]
    return "\n".join([*lines, ""])


def write(package: Path) -> None:
    """Write all files below the directory of klog's package."""
    (package / "formats/_records.py").write_text(derive_records.module_text(), encoding="utf-8")
    (package / "formats/_derived.py").write_text(module_text(), encoding="utf-8")
    _derived.FIELDS.update(fields())
    _derived.BITS.update(bits())
    _derived.LINES.update(text_lines())
    importlib.reload(constants)
    (package / "kernel/_derived.pxi").write_text(include_text(), encoding="utf-8")
    (package / "kernel/_derived_records.pxi").write_text(derive_compiled.include_text(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(__file__).parents[1])
