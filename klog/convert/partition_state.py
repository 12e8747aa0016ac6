"""The state of the conversion of one partition, in files beside its segments.

- `klog-convert.json`: options and tasks; written before the first task. Later the swap that has begun.
- `klog-convert-00000012.json`: the result of task 12, which commits its `.cleaned` files.

Kafka ignores files with these names, and a broker that starts removes the `.cleaned` files. A conversion that
was killed goes on with the tasks that have no result; if options or segments have changed since then, it
begins anew. The files are removed after the swap.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from klog.convert.partition_plan import PartitionPlan
from klog.convert.tasks import ConvertTask, NewSegment, TaskResult
from klog.formats.errors import StorageError
from klog.formats.names import CONVERSION_FILE, FileKind, segment_file
from klog.storage.cleaner.task import CLEANED
from klog.storage.files.files import list_directory, read_small, storage_errors, write_atomically

_STATE: Final = "klog-convert.json"
_RESULT: Final = re.compile(r"klog-convert-[0-9]{8}\.json")
_UNFINISHED: Final = re.compile(r"klog-convert(-[0-9]{8})?\.json\.[0-9]+\.tmp")
_VERSION: Final = 1

JsonObject = dict[str, Any]


class Swap(NamedTuple):
    """A swap that has begun: the base offsets of the old segments, and the new segments."""

    replaces: tuple[int, ...]
    segments: tuple[NewSegment, ...]


class PartitionState:
    """The state in the directory that new segments are written into. Methods raise `StorageError`."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._path = os.path.join(target, _STATE)

    @property
    def exists(self) -> bool:
        """Whether a conversion has begun."""
        return os.path.exists(self._path)

    def swap(self) -> Swap | None:
        """The swap that had begun, None if there was none."""
        if not self.exists:
            return None
        swap = self._read(self._path).get("swap")
        if swap is None:
            return None
        return Swap(
            tuple(swap["replaces"]),
            tuple(NewSegment.from_json(one) for one in swap["segments"]),
        )

    def begin(self, plan: PartitionPlan) -> dict[int, TaskResult]:
        """Begin or continue the conversion; returns the results of its tasks that are done."""
        wanted = json.loads(json.dumps(_plan_json(plan)))
        if self.exists and self._read(self._path) == wanted:
            return self._results(plan.tasks)
        self.discard()
        os.makedirs(self._target, exist_ok=True)
        write_atomically(self._path, _encoded(wanted))
        return {}

    def commit(self, result: TaskResult) -> None:
        """Write the result of a task, which commits it."""
        write_atomically(self._result_path(result.number), _encoded(result.to_json()))

    def begin_swap(self, plan: PartitionPlan, swap: Swap) -> None:
        """Note that all is ready: from here on the swap is completed, whatever happens."""
        noted = _plan_json(plan) | {"swap": swap._asdict()}
        write_atomically(self._path, _encoded(noted))

    def end(self) -> None:
        """Remove the state."""
        for name in self._names():
            if _RESULT.fullmatch(name) or _UNFINISHED.fullmatch(name):
                self._remove(name)
        if self.exists:
            self._remove(_STATE)

    def discard(self) -> None:
        """Remove everything that an unfinished conversion has written."""
        if not self.exists:
            return
        for name in self._names():
            if name.endswith(CLEANED):
                self._remove(name)
        self.end()

    def _results(self, tasks: Sequence[ConvertTask]) -> dict[int, TaskResult]:
        """The results whose files are complete. Files of other tasks are removed."""
        found: dict[int, TaskResult] = {}
        known: set[str] = set()
        for task in tasks:
            path = self._result_path(task.number)
            if not os.path.exists(path):
                continue
            result = TaskResult.from_json(self._read(path))
            names = [
                segment_file(FileKind(kind), segment.base_offset) + CLEANED
                for segment in result.segments
                for kind in segment.files
            ]
            if all(map(self._holds, result.segments)) and set(names) <= set(self._names()):
                found[task.number] = result
                known.update(names)
        for name in self._names():
            if (name.endswith(CLEANED) and name not in known) or _UNFINISHED.fullmatch(name):
                self._remove(name)
        return found

    def _holds(self, segment: NewSegment) -> bool:
        path = os.path.join(self._target, segment_file(FileKind.LOG, segment.base_offset) + CLEANED)
        return os.path.exists(path) and os.path.getsize(path) == segment.size_bytes

    def _names(self) -> list[str]:
        if not os.path.isdir(self._target):
            return []
        return [entry.name for entry in list_directory(self._target)]

    def _result_path(self, number: int) -> str:
        return os.path.join(self._target, f"klog-convert-{number:08d}.json")

    def _remove(self, name: str) -> None:
        path = os.path.join(self._target, name)
        with storage_errors("cannot be removed", path):
            os.unlink(path)

    def _read(self, path: str) -> JsonObject:
        try:
            value: JsonObject = json.loads(read_small(path))
        except ValueError as error:
            raise StorageError(
                f"is no state of a conversion: {error}",
                file=path,
                cure="remove this file and all *.cleaned files beside it: the conversion begins anew",
            ) from error
        if value.get("version", _VERSION) != _VERSION:
            raise StorageError(
                f"was written by another version of klog (state version {value['version']})",
                file=path,
                cure="finish the conversion with that version",
            )
        return value


def is_state(name: str) -> bool:
    """Whether a file belongs to the state of a conversion."""
    return CONVERSION_FILE.fullmatch(name) is not None


def _plan_json(plan: PartitionPlan) -> JsonObject:
    return {
        "version": _VERSION,
        "replaces": list(plan.replaces),
        "tasks": [task.to_json() for task in plan.tasks],
    }


def _encoded(value: JsonObject) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode("ascii")
