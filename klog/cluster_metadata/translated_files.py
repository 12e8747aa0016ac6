"""Properties files that are translated between ZooKeeper and KRaft, each into a file beside the old one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from klog.cluster_metadata.consistency import Problem
from klog.cluster_metadata.conversion_plan import ConfigChange, Plan, Step
from klog.config.properties_draft import Change, Outcome, Translation
from klog.formats.errors import StorageError, placed
from klog.formats.java_properties import PropertyLine, build, config_entries, parse
from klog.storage.files.files import read_whole, storage_errors, write_atomically

Translate: TypeAlias = Callable[[Sequence[PropertyLine]], Translation]


@dataclass(frozen=True, slots=True)
class TranslatedFile:
    """A file, and what its translation will be at `target`."""

    source: str
    target: str
    translation: Translation

    @property
    def changes(self) -> tuple[Change, ...]:
        """What becomes of its configs."""
        return self.translation.changes

    @property
    def content(self) -> bytes:
        """The bytes of the new file."""
        return build(self.translation.lines)

    def write(self) -> None:
        """Writes the new file with the mode of the old one, which may hold secrets. Raises StorageError."""
        if self._is_written():
            return
        if os.path.exists(self.target):
            raise StorageError("exists already", file=self.target, cure="name a new file, or move it away")
        mode = os.stat(self.source).st_mode & 0o777
        with storage_errors("cannot be written", self.target):
            os.close(os.open(self.target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
        write_atomically(self.target, self.content)

    def _is_written(self) -> bool:
        return os.path.exists(self.target) and read_whole(self.target) == self.content

    def problems(self) -> Iterator[Problem]:
        """What a person has to decide, and a file that is in the way."""
        if os.path.exists(self.target) and not self._is_written():
            yield Problem(self.target, "exists already and is another file: move it away")
        for each in self.changes:
            if each.outcome is Outcome.DECIDE:
                yield Problem(self.source, f"{each.name} is {each.outcome}: {each.text}")

    def problems_after(self) -> Iterator[Problem]:
        """What is wrong with the new file once it was written."""
        if not self._is_written():
            yield Problem(self.target, "is not as it was written")


def read_lines(file: str) -> tuple[PropertyLine, ...]:
    """The lines of a properties file. Raises StorageError, `FormatError`."""
    data = read_whole(file)
    with placed(file):
        config_entries(data)
        return parse(data)


def translated(file: str, target: str, translate: Translate) -> TranslatedFile:
    """What becomes of a file. Raises StorageError, `FormatError`, UsageError."""
    lines = read_lines(file)
    with placed(file):
        return TranslatedFile(file, target, translate(lines))


def with_files(plan: Plan, files: Sequence[TranslatedFile]) -> Plan:
    """A plan that first writes these files, too."""

    def write() -> None:
        for each in files:
            each.write()
        plan.write()

    def look_again() -> Iterator[Problem]:
        for each in files:
            yield from each.problems_after()
        yield from plan.look_again()

    changes = tuple(ConfigChange(each.source, change) for each in files for change in each.changes)
    steps = [Step(each.target, f"{each.source}, translated", len(each.content)) for each in files]
    return replace(
        plan,
        steps=(*steps, *plan.steps),
        write=write,
        configs=changes,
        problems=(*(problem for each in files for problem in each.problems()), *plan.problems),
        look_again=look_again,
    )
