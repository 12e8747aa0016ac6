"""Converts plans and results to JSON and back, for the state of a job. Names are in camelCase."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any, Final

from klog.export.decoders.decoding import Decoding, Encoding
from klog.export.decoders.wire import RegisteredSchema
from klog.export.jobs import Decodings, SplitResult
from klog.export.outputs import WrittenFile
from klog.formats.errors import KlogError
from klog.replicas.splits import (
    AbortedRange,
    Divergence,
    FallbackSegment,
    LostRange,
    PartitionPlan,
    Plan,
    Split,
    SplitFile,
)

JsonObject = dict[str, Any]

_JSON_NAMES: Final = {"fallbacks": "spares", "repaired": "mended", "rows_with_error": "misfits"}
"""Fields with other names in JSON, which are part of the file format."""
_FIELD_NAMES: Final = {name: field for field, name in _JSON_NAMES.items()}


def to_json(value: Any) -> Any:  # noqa: ANN401 (any value of ours)
    """A value made of dataclasses, mappings, sets and sequences, as JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        return {_json_name(field.name): to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, KlogError):
        return {
            "what": value.what,
            "file": value.file,
            "positionBytes": value.position_bytes,
            "cure": value.cure,
        }
    if isinstance(value, Mapping):
        return {str(key): to_json(inner) for key, inner in sorted(value.items())}
    if isinstance(value, Set):
        return sorted(to_json(inner) for inner in value)
    if isinstance(value, (tuple, list)):
        return [to_json(inner) for inner in value]
    return str(value) if isinstance(value, StrEnum) else value


def _json_name(name: str) -> str:
    first, *others = _JSON_NAMES.get(name, name).split("_")
    return first + "".join(word.capitalize() for word in others)


def _arguments(value: JsonObject) -> dict[str, Any]:
    """The fields of a dataclass, from the output of `to_json`."""
    return {
        _FIELD_NAMES.get(name, re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)): inner
        for name, inner in value.items()
    }


def split_from_json(value: JsonObject) -> Split:
    """The split, from the output of `to_json`."""
    aborted = tuple(AbortedRange(**_arguments(inner)) for inner in value["aborted"])
    fallbacks = tuple(FallbackSegment(**_arguments(inner)) for inner in value["spares"])
    files = tuple(SplitFile(**_arguments(inner)) for inner in value.get("files", ()))
    return Split(**{**_arguments(value), "aborted": aborted, "fallbacks": fallbacks, "files": files})


def plan_from_json(value: JsonObject) -> Plan:
    """The plan, from the output of `to_json`."""
    return Plan(
        splits=tuple(map(split_from_json, value["splits"])),
        partitions=tuple(
            PartitionPlan(**{**_arguments(inner), "directories": tuple(inner["directories"])})
            for inner in value["partitions"]
        ),
        divergences=tuple(Divergence(**_arguments(inner)) for inner in value["divergences"]),
        lost=tuple(LostRange(**_arguments(inner)) for inner in value["lost"]),
        problems=tuple(map(_problem, value["problems"])),
        skipped=tuple((path, reason) for path, reason in value["skipped"]),
    )


def _problem(value: JsonObject) -> KlogError:
    arguments = _arguments(value)
    return KlogError(arguments.pop("what"), **arguments)


def decodings_from_json(value: JsonObject) -> Decodings:
    """The decodings, from the output of `to_json`."""
    return Decodings(_decoding(value["key"]), _decoding(value["value"]))


def _decoding(value: JsonObject) -> Decoding:
    registered = tuple(RegisteredSchema(**_arguments(inner)) for inner in value["registered"])
    return Decoding(
        **{**_arguments(value), "encoding": Encoding(value["encoding"]), "registered": registered}
    )


def result_from_json(value: JsonObject) -> SplitResult:
    """The result of a split, from the output of `to_json`."""
    reject_file = value["rejectFile"]
    return SplitResult(
        **{
            **_arguments(value),
            "split": split_from_json(value["split"]),
            "files": tuple(WrittenFile(**_arguments(inner)) for inner in value["files"]),
            "reject_file": None if reject_file is None else WrittenFile(**_arguments(reject_file)),
            "lost": tuple(LostRange(**_arguments(inner)) for inner in value["lost"]),
            "repaired": tuple(LostRange(**_arguments(inner)) for inner in value["mended"]),
        }
    )
