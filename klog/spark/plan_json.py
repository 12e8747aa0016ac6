"""Plans and results as JSON, and back: what a job's books hold."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any

from klog.formats.errors import KlogError
from klog.spark.jobs import SplitResult
from klog.spark.outputs import WrittenFile
from klog.spark.splits import AbortedRange, Divergence, LostRange, PartitionPlan, Plan, Split

JsonObject = dict[str, Any]


def to_json(value: Any) -> Any:  # noqa: ANN401 (any value of ours)
    """A value made of dataclasses, mappings, sets and sequences, as JSON has them."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, KlogError):
        return {
            "what": value.what,
            "file": value.file,
            "position_bytes": value.position_bytes,
            "cure": value.cure,
        }
    if isinstance(value, Mapping):
        return {str(key): to_json(inner) for key, inner in sorted(value.items())}
    if isinstance(value, Set):
        return sorted(to_json(inner) for inner in value)
    if isinstance(value, (tuple, list)):
        return [to_json(inner) for inner in value]
    return str(value) if isinstance(value, StrEnum) else value


def split_from_json(value: JsonObject) -> Split:
    """The split of `to_json`."""
    aborted = tuple(AbortedRange(**inner) for inner in value["aborted"])
    return Split(**{**value, "aborted": aborted})


def plan_from_json(value: JsonObject) -> Plan:
    """The plan of `to_json`."""
    return Plan(
        splits=tuple(map(split_from_json, value["splits"])),
        partitions=tuple(
            PartitionPlan(**{**inner, "directories": tuple(inner["directories"])})
            for inner in value["partitions"]
        ),
        divergences=tuple(Divergence(**inner) for inner in value["divergences"]),
        lost=tuple(LostRange(**inner) for inner in value["lost"]),
        problems=tuple(
            KlogError(
                inner["what"],
                file=inner["file"],
                position_bytes=inner["position_bytes"],
                cure=inner["cure"],
            )
            for inner in value["problems"]
        ),
        skipped=tuple((path, reason) for path, reason in value["skipped"]),
    )


def result_from_json(value: JsonObject) -> SplitResult:
    """The result of `to_json`."""
    reject_file = value["reject_file"]
    return SplitResult(
        **{
            **value,
            "split": split_from_json(value["split"]),
            "files": tuple(WrittenFile(**inner) for inner in value["files"]),
            "reject_file": None if reject_file is None else WrittenFile(**reject_file),
            "lost": tuple(LostRange(**inner) for inner in value["lost"]),
        }
    )
