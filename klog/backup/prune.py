"""Removes backups by rules, and the objects that no other backup needs.

A run that goes on meanwhile builds on the backup that was the newest when it began. So the newest is always
kept, and so are all that are younger than the grace time, and the one that was the newest before them. An
object that no backup needs may belong to a run that has not ended: it is removed when it is older than the
grace time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from klog.backup import names
from klog.backup.catalogue import Catalogue, needed_by, read_catalogue
from klog.backup.contents import Contents
from klog.backup.pieces import REUSED_MS
from klog.backup.repository import Repository
from klog.formats.errors import UsageError

GRACE_MS: Final = 24 * 3_600_000
_PREFIXES: Final = tuple(f"{each}/" for each in names.OF_BACKUPS)


@dataclass(frozen=True, slots=True)
class Rules:
    """Which backups are kept: the newest `last`, the newest of each of the last `daily` days and `weekly`
    weeks that have one (in UTC), and all that began at `before_ms` or later. None: the rule keeps none by
    itself.
    """

    last: int | None = None
    daily: int | None = None
    weekly: int | None = None
    before_ms: int | None = None

    def kept(self, backups: Sequence[tuple[str, int]]) -> set[str]:
        """The ids that are kept of backups (id, time of begin), the oldest first. The newest always is.

        Raises `UsageError` if there is no rule at all.
        """
        if (self.last, self.daily, self.weekly, self.before_ms) == (None, None, None, None):
            cure = "give --keep-last, --keep-daily, --keep-weekly or --before"
            raise UsageError("nothing says which backups to keep", cure=cure)
        newest_first = list(reversed(backups))
        kept = {identifier for identifier, _ in newest_first[: max(1, self.last or 0)]}
        kept |= _newest_of_each(newest_first, self.daily, lambda moment: moment.date())
        kept |= _newest_of_each(newest_first, self.weekly, lambda moment: moment.isocalendar()[:2])
        if self.before_ms is not None:
            kept |= {identifier for identifier, begin_ms in backups if begin_ms >= self.before_ms}
        return kept


def _newest_of_each(
    newest_first: Iterable[tuple[str, int]], most: int | None, period_of: Callable[[datetime], object]
) -> set[str]:
    found: dict[object, str] = {}
    for identifier, begin_ms in newest_first:
        found.setdefault(period_of(datetime.fromtimestamp(begin_ms / 1000, UTC)), identifier)
    return set(list(found.values())[: most or 0])


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What a prune removes: backups by id, and objects with their sizes in bytes. `young` are kept for their
    age only. Objects that were written after `since_ms` stay.
    """

    removed: tuple[str, ...]
    kept: tuple[str, ...]
    young: tuple[str, ...]
    objects: dict[str, int]
    since_ms: int = 0

    @property
    def removes_something(self) -> bool:
        """Whether there is anything to remove."""
        return bool(self.removed or self.objects)

    @property
    def freed_bytes(self) -> int:
        """The bytes of the objects."""
        return sum(self.objects.values())


def plan_prune(repository: Repository, rules: Rules, now_ms: int, grace_ms: int = GRACE_MS) -> PrunePlan:
    """Find out what to remove. Raises `KlogError` if a kept backup cannot be read: then nothing is known."""
    listed = repository.store.files()  # before the manifests: what a run adds meanwhile is not in it
    catalogue = read_catalogue(repository)
    begins = {each.id: each.begin_ms for each in catalogue.backups}
    begins |= {each: names.time_of_id(each) for each in catalogue.damaged}
    kept = rules.kept(sorted(begins.items()))
    readable = [each.id for each in catalogue.backups]
    young = _young(begins, readable, now_ms - grace_ms) - kept
    kept |= young
    for identifier in sorted(kept):
        if identifier in catalogue.damaged:
            raise catalogue.damaged[identifier]
    is_needed = _needed(repository, catalogue, kept)
    objects = {
        name: status.size_bytes
        for name, status in listed.items()
        if name.startswith((*_PREFIXES, "_"))
        and not is_needed(name)
        and status.modified_ms <= now_ms - grace_ms
    }
    removed = begins.keys() - kept
    return PrunePlan(
        tuple(sorted(removed)), tuple(sorted(kept)), tuple(sorted(young)), objects, now_ms - grace_ms
    )


def _young(begins: Mapping[str, int], readable: Sequence[str], since_ms: int) -> set[str]:
    """The backups that began after a time, and the one that was the newest then: a run that has begun since
    builds on one of these.
    """
    young = {each for each, begin_ms in begins.items() if begin_ms > since_ms}
    newest_then = bisect_right(readable, since_ms, key=names.time_of_id)
    return young.union(readable[max(0, newest_then - 1) :])


def _needed(repository: Repository, catalogue: Catalogue, kept: set[str]) -> Callable[[str], bool]:
    """Whether kept backups need an object. Raises `KlogError` if what says so cannot be read."""
    needed = needed_by(repository, catalogue, kept)
    found = set(needed.objects)
    contents = Contents(repository)
    for identifier in needed.to_read:
        found.update(contents.objects_of(repository.manifest(identifier)))
    ids = sorted(kept)

    def is_needed(name: str) -> bool:
        between = names.ids_of_summary(name)
        if between is None:
            return name in found
        return bisect_right(ids, between[1]) - bisect_left(ids, between[0]) >= 2  # else it is not read

    return is_needed


def prune(repository: Repository, plan: PrunePlan, on_removed: Callable[[str], object]) -> None:
    """Remove what the plan says: manifests first, so that no backup ever lacks an object."""
    for identifier in plan.removed:
        name = names.manifest(identifier)
        repository.store.remove(name)
        on_removed(name)
    for name in plan.objects:
        status = repository.store.status(name)
        if status is not None and status.modified_ms <= plan.since_ms:  # else a run has just written it anew
            repository.store.remove(name)
            on_removed(name)


def checked_grace(grace_ms: int, *, alone: bool) -> int:
    """A grace time. Raises `UsageError` if it is too short for runs at the same time, unless prune is
    `alone`."""
    if grace_ms <= REUSED_MS and not alone:
        raise UsageError(
            f"a grace time of {grace_ms} ms may remove what a run is just using",
            cure=f"let it be more than {REUSED_MS // 3_600_000} h, or say --no-runs if none is under way",
        )
    return grace_ms
