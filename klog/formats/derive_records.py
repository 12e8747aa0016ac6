"""Makes `_records` of the definitions: the shapes of the records of the coordinators."""

from __future__ import annotations

import re
import textwrap
from typing import Final

from klog.formats import consumer_offsets, shapes, transaction_state
from klog.formats.definition_shapes import shape_of
from klog.formats.structures import Versioned

_KEYS: Final = (*range(9), 16)  # of classic and consumer groups
_VALUES: Final = (1, 2, 3, 5, 6, 7, 8, 16)  # 0 has those of 1, and nobody needs those of 4

SOURCES: Final[dict[str, Versioned]] = {
    "GroupKey": Versioned("GroupKey", {kind: consumer_offsets.Key.versions[kind] for kind in _KEYS}),
    **{consumer_offsets.VALUES[kind].title: consumer_offsets.VALUES[kind] for kind in _VALUES},
    "TransactionLogKey": transaction_state.Key,
    "TransactionLogValue": transaction_state.Value,
}
"""What is made, by the names in `_records.FIELDS`."""

_NAMES: Final = {
    shape: name for name, shape in vars(shapes).items() if name.isupper() and isinstance(shape, tuple)
}
_WIDTH: Final = 110


def module_text() -> str:
    """The text of `_records.py`."""
    lines: list[str] = []
    for title, definition in SOURCES.items():
        lines.append(f'    "{title}": {{')
        for version, fields in definition.versions.items():
            text = f"{version}: {_text(shape_of(fields))},"
            lines += textwrap.wrap(text, _WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 12)
        lines.append("    },")
    made = "\n".join(lines)
    called = sorted(set(re.findall(r"\w+", re.sub('"[^"]*"', "", made))) & set(vars(shapes)))
    return (
        '"""What `record_fields` reads and writes. Made by `python -m klog.formats.derive`: do not edit."""\n'
        "\n"
        "# fmt: off\n"
        "from klog.formats.shapes import (\n"
        + "".join(f"    {name},\n" for name in called)
        + ")\n\nFIELDS: dict[str, dict[int, Struct]] = {\n"
        + made
        + "\n}\n"
    )


def _text(shape: object) -> str:
    """The source of a shape."""
    if not isinstance(shape, tuple):
        return f'"{shape}"' if isinstance(shape, str) else repr(shape)
    if shape in _NAMES:
        return _NAMES[shape]
    parts = ", ".join(map(_text, shape))
    kind = type(shape).__name__ if type(shape) is not tuple else ""
    return f"{kind}({parts}{',' if not kind and len(shape) == 1 else ''})"
