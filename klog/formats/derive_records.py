"""Makes `_records` of the definitions: functions that read and write the records of the coordinators."""

from __future__ import annotations

from typing import Final

from klog.formats import consumer_offsets, transaction_state
from klog.formats.fast_readers import KafkaReaderSource
from klog.formats.fast_writers import WriterSource
from klog.formats.function_source import FunctionSource
from klog.formats.structures import Versioned

_KEYS: Final = (*range(9), 16)  # of classic and consumer groups
_VALUES: Final = (1, 2, 3, 5, 6, 7, 8, 16)  # 0 has those of 1, and nobody needs those of 4

SOURCES: Final[dict[str, Versioned]] = {
    "GroupKey": Versioned("GroupKey", {kind: consumer_offsets.Key.versions[kind] for kind in _KEYS}),
    **{consumer_offsets.VALUES[kind].title: consumer_offsets.VALUES[kind] for kind in _VALUES},
    "TransactionLogKey": transaction_state.Key,
    "TransactionLogValue": transaction_state.Value,
}
"""What is made, by the names in `_records.READERS` and `_records.WRITERS`."""

_NAME: Final = "NAME"
_CALLED: Final = (
    "ABSENT",
    "REFUSALS",
    "misfit",
    "read_uvarint as uvarint",
    "refusal",
    "tagged",
    "tagged_fields",
    "too_long",
    "uuid_bytes",
    "uuid_text",
)


def module_text() -> str:
    """The text of `_records.py`."""
    constants: dict[str, str] = {}
    functions: dict[str, str] = {}
    tables: list[str] = []
    for table, kind, form in (("READERS", "read", KafkaReaderSource), ("WRITERS", "write", WriterSource)):
        tables.append(f"{table}: dict[str, dict[int, Callable]] = {{")
        for title, definition in SOURCES.items():
            tables.append(f'    "{title}": {{')
            for version, fields in definition.versions.items():
                source = FunctionSource()
                form(source).add(_NAME, fields)
                constants |= source.constants
                # Versions that do not differ have one function.
                name = functions.setdefault(source.text(), f"{kind}_{title}_{version}")
                tables.append(f"        {version}: {name},")
            tables.append("    },")
        tables.append("}")
    head = [
        '"""What `record_fields` gives out. Made by `python -m klog.formats.derive`: do not edit."""',
        "",
        "# fmt: off",
        "# mypy: ignore-errors",
        "from collections.abc import Callable",
        "from struct import Struct, pack, unpack_from",
        "",
        "from klog.formats.record_functions import (",
        *(f"    {name}," for name in _CALLED),
        ")",
        "from klog.formats.varints import uvarint as write_uvarint",
        "",
        *(f"{name} = {constants[name]}" for name in sorted(constants)),
    ]
    written = (text.replace(_NAME, name) for text, name in functions.items())
    return "\n\n\n".join(["\n".join(head), *written, "\n".join([*tables, ""])])
