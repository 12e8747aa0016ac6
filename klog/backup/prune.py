"""Removes backups by rules, and the objects that no other backup needs.

A run that goes on meanwhile builds on the newest backup, which is always kept, and so is every backup that is
younger than the grace time. An object that no backup needs may belong to a run that has not ended: it is
removed when it is older than the grace time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from klog.backup import names
from klog.backup.contents import Contents
from klog.backup.model import Manifest
from klog.backup.pieces import REUSED_MS
from klog.backup.repository import Repository
from klog.formats.errors import UsageError

GRACE_MS: Final = 24 * 3_600_000
_PREFIXES: Final = tuple(f"{each}/" for each in (names.DATA, names.STATES, names.TABLES, names.METADATA))


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
    """What a prune removes: backups, and objects with their sizes in bytes. `young` are kept for their age
    only."""

    removed: tuple[Manifest, ...]
    kept: tuple[Manifest, ...]
    young: tuple[str, ...]
    objects: dict[str, int]

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
    backups = list(repository.manifests())
    kept_ids = rules.kept([(each.id, each.begin_ms) for each in backups])
    young = {each.id for each in backups if each.begin_ms > now_ms - grace_ms} - kept_ids
    kept = [each for each in backups if each.id in kept_ids or each.id in young]
    contents = Contents(repository)
    needed = {name for manifest in kept for name in contents.objects_of(manifest)}
    objects = {
        name: status.size_bytes
        for name, status in listed.items()
        if name.startswith((*_PREFIXES, "_"))
        and name not in needed
        and status.modified_ms <= now_ms - grace_ms
    }
    kept_names = {each.id for each in kept}
    removed = tuple(each for each in backups if each.id not in kept_names)
    return PrunePlan(removed, tuple(kept), tuple(sorted(young)), objects)


def prune(repository: Repository, plan: PrunePlan, on_removed: Callable[[str], object]) -> None:
    """Remove what the plan says: manifests first, so that no backup ever lacks an object."""
    for manifest in plan.removed:
        name = names.manifest(manifest.id)
        repository.store.remove(name)
        on_removed(name)
    for name in plan.objects:
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
