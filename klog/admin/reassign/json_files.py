"""Reads and writes the JSON files of `kafka-reassign-partitions`.

Rules: Kafka's ReassignPartitionsCommand, whose words the messages have. `version` may be missing and is 1
then, and `log_dirs` may be missing. Written files are on one line, sorted by topic and partition; Kafka's
tool writes ANY_LOG_DIR for every directory.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from klog.admin.reassign.values import ANY_LOG_DIR, PartitionAssignment
from klog.formats.constants import INT32_MAX
from klog.formats.errors import FormatError
from klog.formats.names import TopicPartition

VERSION: Final = 1
_EXAMPLE: Final = '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2]}]}'


def format_assignments(assignments: Iterable[PartitionAssignment]) -> str:
    """The JSON of assignments as Kafka's tool writes it, without the end of the line."""
    partitions = [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "replicas": list(each.replicas),
            "log_dirs": list(each.log_dirs) or [ANY_LOG_DIR] * len(each.replicas),
        }
        for each in sorted(assignments, key=lambda each: each.partition)
    ]
    return json.dumps(
        {"version": VERSION, "partitions": partitions}, separators=(",", ":"), ensure_ascii=False
    )


def parse_assignments(text: str, file: str, *, may_be_empty: bool = False) -> list[PartitionAssignment]:
    """The assignments of a file's text, in its order; `file` is its name for messages.

    With `may_be_empty` an empty list of partitions is right, too, as in a plan that finds nothing to do.

    Raises FormatError: no JSON, another version, missing or wrong fields, no partition, no replica, a
    partition or a replica twice, other numbers of directories than of replicas.
    """
    values = _list_of(text, file, "partitions", _EXAMPLE)
    found = [
        _Place(file, f"partitions[{number}]").assignment(value) for number, value in enumerate(values or ())
    ]
    if not found and not (may_be_empty and values is not None):
        raise FormatError("Partition reassignment list cannot be empty", file=file, cure=_like(_EXAMPLE))
    twice = _twice(each.partition for each in found)
    if twice:
        names = ",".join(map(str, twice))
        raise FormatError(f"Partition reassignment contains duplicate topic partitions: {names}", file=file)
    return found


def parse_topics(text: str, file: str) -> list[str]:
    """The topics of `--topics-to-move-json-file`, in its order. Raises FormatError."""
    example = '{"version":1,"topics":[{"topic":"orders"}]}'
    topics = []
    for number, value in enumerate(_list_of(text, file, "topics", example) or ()):
        place = _Place(file, f"topics[{number}]")
        topics.append(place.text(place.field(place.fields_of(value), "topic"), "topic"))
    if twice := _twice(topics):
        names = ",".join(map(str, twice))
        raise FormatError(f"List of topics to reassign contains duplicate entries: {names}", file=file)
    return topics


def _list_of(text: str, file: str, name: str, example: str) -> Sequence[object] | None:
    """The list in a field of the file's object, after its version; None if there is no such field."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        position = getattr(error, "pos", None)
        at = None if position is None else len(text[:position].encode("utf-8", "surrogatepass"))
        what = str(getattr(error, "msg", "nested too deeply"))
        raise FormatError(f"not JSON: {what}", file=file, position_bytes=at, cure=_like(example)) from error
    place = _Place(file, "the file")
    fields = place.fields_of(whole)
    version = fields.get("version", VERSION)
    if version != VERSION or isinstance(version, bool | float):
        raise FormatError(
            f"Not supported version field value {_shown(version)}",
            file=file,
            cure=f"version {VERSION} is known",
        )
    found = fields.get(name)
    if name in fields and not isinstance(found, list):
        raise place.wrong(name, "a list", found)
    return found if isinstance(found, list) else None


class _Place:
    """A place in a file, for messages about what is wrong there."""

    def __init__(self, file: str, name: str) -> None:
        self._file = file
        self._name = name

    def wrong(self, field: str, expected: str, value: object) -> FormatError:
        return FormatError(
            f"{self._name}: {field} has to be {expected}, not {_shown(value)}", file=self._file
        )

    def fields_of(self, value: object) -> dict[str, object]:
        if not isinstance(value, dict):
            raise self.wrong("it", "an object", value)
        return value

    def field(self, fields: dict[str, object], name: str) -> object:
        if name not in fields:
            raise FormatError(f"{self._name}: no field `{name}`", file=self._file)
        return fields[name]

    def text(self, value: object, name: str) -> str:
        if not isinstance(value, str) or not value:
            raise self.wrong(name, "a text", value)
        return value

    def number(self, value: object, name: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= INT32_MAX:
            raise self.wrong(name, "a whole number from 0", value)
        return value

    def items_of(self, value: object, name: str) -> list[object]:
        if not isinstance(value, list):
            raise self.wrong(name, "a list", value)
        return value

    def assignment(self, value: object) -> PartitionAssignment:
        fields = self.fields_of(value)
        partition = TopicPartition(
            self.text(self.field(fields, "topic"), "topic"),
            self.number(self.field(fields, "partition"), "partition"),
        )
        replicas = [
            self.number(each, "replicas")
            for each in self.items_of(self.field(fields, "replicas"), "replicas")
        ]
        log_dirs = [
            self.text(each, "log_dirs") for each in self.items_of(fields.get("log_dirs", []), "log_dirs")
        ]
        if not replicas:
            raise FormatError(f"{self._name}: Partition replica list cannot be empty", file=self._file)
        if twice := _twice(replicas):
            raise FormatError(
                f"{self._name}: Partition replica lists may not contain duplicate entries: "
                f"{partition} contains multiple entries for {','.join(map(str, twice))}",
                file=self._file,
            )
        if "log_dirs" in fields and len(log_dirs) != len(replicas):
            raise FormatError(
                f"{self._name}: Size of replicas list {_listed(replicas)} is different from size of log dirs "
                f"list {_listed(log_dirs)} for partition {partition}",
                file=self._file,
            )
        for path in log_dirs:
            if path != ANY_LOG_DIR and not path.startswith("/"):
                raise self.wrong("log_dirs", f'"{ANY_LOG_DIR}" or an absolute path', path)
        named = any(path != ANY_LOG_DIR for path in log_dirs)
        return PartitionAssignment(partition, tuple(replicas), tuple(log_dirs) if named else ())


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _listed(values: Sequence[object]) -> str:
    return f"[{', '.join(map(str, values))}]"


def _like(example: str) -> str:
    return f"it has to be like {example}"


def _twice(values: Iterable[object]) -> list[object]:
    return [value for value, count in Counter(values).items() if count > 1]
