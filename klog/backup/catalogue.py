"""All backups of a repository: summaries are read where there are any, and manifests where there are none.

`Summariser` writes summaries after runs. A repository without any is read as well, only with more requests.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate
from typing import Any, Final, TypeVar

from klog.backup import names
from klog.backup.contents import objects_of_state
from klog.backup.documents import Document
from klog.backup.model import Manifest
from klog.backup.repository import MissingObjectError, Repository
from klog.backup.summaries import (
    OBJECT_USE,
    SUMMARY,
    BackupSummary,
    Growing,
    ObjectUse,
    Ranges,
    Summary,
    joined,
    pairs,
    summary_of,
)
from klog.formats.errors import FormatError, MissingInputError
from klog.formats.names import TopicPartition

_Value = TypeVar("_Value")

SUMMARISED: Final = 128
"""How many backups one summary has."""
SETTLED_MS: Final = 60_000
"""A run that ends now may be listed after one that ends later, but not that much."""


@dataclass(frozen=True, slots=True)
class TopicSpan:
    """The first and the last backup that have a topic, and how many have it."""

    first: str
    last: str
    backups: int


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The backups that can be read, the oldest first, and by topic which of them have it.

    `damaged` says by id what is wrong with the others, `problems` what is wrong with summaries.
    `in_summary` has the backups that are in one of `summaries`: which one, and the number in it.
    """

    backups: tuple[BackupSummary, ...]
    topics: Mapping[str, TopicSpan]
    damaged: Mapping[str, FormatError]
    problems: Sequence[FormatError]
    summaries: Sequence[Summary]
    in_summary: Mapping[str, tuple[int, int]]


def read_catalogue(repository: Repository) -> Catalogue:
    """All backups. Raises `StorageError` if the repository cannot be reached."""
    ids = repository.ids()
    known = set(ids)
    summaries: list[Summary] = []
    in_summary: dict[str, tuple[int, int]] = {}
    problems: list[FormatError] = []
    listed = [] if len(ids) < 2 else _worth_reading(repository.store.files(names.SUMMARIES), ids)
    for found in repository.side_by_side(lambda name: _read(repository, name, SUMMARY), listed):
        if isinstance(found, FormatError):
            problems.append(found)
        elif found is not None:
            for number, backup in enumerate(found.backups):
                if backup.id in known:
                    in_summary.setdefault(backup.id, (len(summaries), number))
            summaries.append(found)
    backups = [summaries[index].backups[number] for index, number in in_summary.values()]
    spans = _Spans()
    for index, summary in enumerate(summaries):
        spans.add_summary(summary, [in_summary.get(each.id, (-1, 0))[0] == index for each in summary.backups])
    damaged: dict[str, FormatError] = {}
    others = [each for each in ids if each not in in_summary]
    read = repository.side_by_side(lambda each: _read_backup(repository, each), others)
    for identifier, outcome in zip(others, read, strict=True):
        if isinstance(outcome, FormatError):
            damaged[identifier] = outcome
        elif outcome is not None:
            backups.append(outcome[0])
            spans.add_backup(identifier, outcome[1])
    backups.sort(key=lambda each: each.id)
    return Catalogue(tuple(backups), spans.found, damaged, problems, summaries, in_summary)


def _worth_reading(listed: Iterable[str], ids: Sequence[str]) -> list[str]:
    """The summaries that spare reading manifests: each has two or more that the ones before have not."""
    chosen = []
    covered = 0
    ranges = [
        (found, name)
        for name in listed
        if (found := names.ids_of_summary(name)) is not None and not names.is_needs(name)
    ]
    for (first, last), name in sorted(ranges, key=lambda each: (each[0][0], each[1])):
        end = bisect_right(ids, last)
        if end - max(covered, bisect_left(ids, first)) >= 2:
            chosen.append(name)
            covered = end
    return chosen


def _read(repository: Repository, name: str, document: Document[_Value]) -> _Value | FormatError | None:
    """A summary or its needs; None if it was just pruned."""
    try:
        return repository.document(name, document.decode)
    except MissingObjectError:
        return None
    except FormatError as error:
        return FormatError(error.what, file=error.file, cure="remove it: klog reads the manifests instead")


def summary_problem(repository: Repository, name: str) -> FormatError | None:
    """What is wrong with a summary or with its needs."""
    document: Document[Any] = OBJECT_USE if names.is_needs(name) else SUMMARY
    found = _read(repository, name, document)
    return found if isinstance(found, FormatError) else None


def _read_backup(
    repository: Repository, identifier: str
) -> tuple[BackupSummary, set[str]] | FormatError | None:
    """A backup and its topics; None if it was just pruned."""
    try:
        manifest = repository.manifest(identifier)
        refs = repository.partitions(manifest)
    except MissingInputError:
        return None
    except FormatError as error:
        return error
    return summary_of(manifest, refs), {partition.topic for partition in refs}


class _Spans:
    """Collects which backups have a topic."""

    def __init__(self) -> None:
        self.found: dict[str, TopicSpan] = {}

    def add_backup(self, identifier: str, topics: Iterable[str]) -> None:
        """A backup with its topics."""
        for topic in topics:
            self._add(topic, identifier, identifier, 1)

    def add_summary(self, summary: Summary, counts: Sequence[bool]) -> None:
        """The backups of a summary that count."""
        before = [0, *accumulate(map(int, counts))]
        for topic, ranges in summary.topics.items():
            numbers = [
                (
                    bisect_right(before, before[first]) - 1,
                    bisect_left(before, before[end]) - 1,
                    before[end] - before[first],
                )
                for first, end in pairs(ranges)
                if end < len(before) and before[end] > before[first]
            ]
            for first, last, count in numbers:
                self._add(topic, summary.backups[first].id, summary.backups[last].id, count)

    def _add(self, topic: str, first: str, last: str, count: int) -> None:
        found = self.found.get(topic, TopicSpan(first, last, 0))
        self.found[topic] = TopicSpan(min(found.first, first), max(found.last, last), found.backups + count)


@dataclass(frozen=True, slots=True)
class NeededObjects:
    """What backups need: `objects`, each with the newest of them that needs it, and all that the backups
    `to_read` lead to.
    """

    objects: Mapping[str, str]
    to_read: Sequence[str]


def needed_by(repository: Repository, catalogue: Catalogue, identifiers: Iterable[str]) -> NeededObjects:
    """What some backups need. Few of them are to be read if summaries have them.

    An object that all backups of a summary need is not in its `ObjectUse`, but any one of them leads to it.
    """
    objects: dict[str, str] = {}
    members: dict[int, list[int]] = {}
    to_read = []
    for identifier in sorted(identifiers):
        index, number = catalogue.in_summary.get(identifier, (-1, 0))
        if index < 0:
            to_read.append(identifier)
        else:
            members.setdefault(index, []).append(number)
    for index, numbers in members.items():
        summary = catalogue.summaries[index]
        needs = None if len(numbers) < 2 else _needs(repository, summary)
        to_read += [summary.backups[number].id for number in (numbers if needs is None else numbers[-1:])]
        if needs is not None:
            for name, number in needs.of(numbers).items():
                objects[name] = max(objects.get(name, ""), summary.backups[number].id)
    return NeededObjects(objects, sorted(to_read))


def _needs(repository: Repository, summary: Summary) -> ObjectUse | None:
    """What the document says; None if it cannot be read: manifests and states say the same."""
    try:
        return None if summary.objects is None else repository.document(summary.objects, OBJECT_USE.decode)
    except FormatError:
        return None


# -- Writing ------------------------------------------------------------------------------------------------


class Summariser:
    """Writes a summary when there are enough backups without one.

    The runs of one process ask it after each; it lists the repository only when there may be enough.
    """

    def __init__(
        self, repository: Repository, summarised: int = SUMMARISED, settled_ms: int = SETTLED_MS
    ) -> None:
        self._repository = repository
        self._summarised = summarised
        self._settled_ms = settled_ms
        self._runs_to_wait = 0

    def after_run(self) -> str | None:
        """Write a summary if one is due: its name. Raises `KlogError`."""
        if self._runs_to_wait > 0:
            self._runs_to_wait -= 1
            return None
        waiting = self._waiting()
        if len(waiting) < self._summarised:
            self._runs_to_wait = self._summarised - len(waiting) - 1
            return None
        return write_summary(self._repository, waiting[: self._summarised])

    def _waiting(self) -> list[str]:
        """The settled backups after those that have summaries, the oldest first."""
        found = map(names.ids_of_summary, self._repository.store.files(names.SUMMARIES))
        last = max((each[1] for each in found if each is not None), default="")
        days = [day for day in self._repository.days() if day.replace("-", "") >= last[:8]]
        ids = self._repository.ids_of_day(days[0]) if len(days) == 1 else self._repository.ids()
        waiting = [each for each in ids if each > last]
        if not waiting:
            return []
        settled_ms = names.time_of_id(waiting[-1]) - self._settled_ms
        return waiting[: bisect_right(waiting, settled_ms, key=names.time_of_id)]


def write_summary(repository: Repository, identifiers: Sequence[str]) -> str | None:
    """Write a summary of backups: its name, None if none of them can be read. Damaged ones are left out."""
    read = repository.side_by_side(lambda each: _manifest(repository, each), identifiers)
    manifests = [each for each in read if each is not None]
    if not manifests:
        return None
    backups = []
    topics, states, others = Growing(), Growing(), Growing()
    for number, manifest in enumerate(manifests):
        refs = repository.partitions(manifest)
        backups.append(summary_of(manifest, refs))
        for topic in {partition.topic for partition in refs}:
            topics.add(topic, number)
        for partition, ref in refs.items():
            states.add((partition, ref.states), number)
        for name in (manifest.table, None if manifest.metadata is None else manifest.metadata.name):
            if name is not None:
                others.add(name, number)
    try:
        objects = _put_needs(repository, backups, _needed_by_some(repository, len(backups), states, others))
    except FormatError:
        objects = None  # states are damaged: a prune reads what it needs, and says so
    data = SUMMARY.encode(Summary(tuple(backups), dict(topics.items()), objects))
    name = names.summary(backups[0].id, backups[-1].id, _content_id(repository, data))
    repository.store.put(name, data)
    return name


def _manifest(repository: Repository, identifier: str) -> Manifest | None:
    try:
        manifest = repository.manifest(identifier)
        repository.partitions(manifest)
    except (FormatError, MissingInputError):
        return None
    return manifest


def _needed_by_some(
    repository: Repository, count: int, states: Growing, others: Growing
) -> dict[str, Ranges]:
    """The objects that not all of `count` backups need. Raises `FormatError` if states cannot be read.

    Partitions are looked at one by one: one that has the same state in all backups needs no look.
    """
    found: dict[str, list[tuple[int, int]]] = {}
    changing: dict[str, list[tuple[TopicPartition, Ranges]]] = {}
    for (partition, name), ranges in states.items():
        if ranges != (0, count):
            changing.setdefault(name, []).append((partition, ranges))
    read = repository.side_by_side(repository.states, list(changing))
    for (name, members), stored in zip(changing.items(), read, strict=True):
        for partition, ranges in members:
            found.setdefault(name, []).extend(pairs(ranges))
            for each in objects_of_state(repository, partition, stored[partition]):
                found.setdefault(each, []).extend(pairs(ranges))
    for name, ranges in others.items():
        found.setdefault(name, []).extend(pairs(ranges))
    needed = {name: joined(ranges) for name, ranges in found.items()}
    return {name: ranges for name, ranges in needed.items() if ranges != (0, count)}


def _put_needs(
    repository: Repository, backups: Sequence[BackupSummary], objects: Mapping[str, Ranges]
) -> str:
    data = OBJECT_USE.encode(ObjectUse(objects))
    name = names.needs(backups[0].id, backups[-1].id, _content_id(repository, data))
    repository.store.put(name, data)
    return name


def _content_id(repository: Repository, data: bytes) -> str:
    return repository.store.content_id(sha256(data).hexdigest())
