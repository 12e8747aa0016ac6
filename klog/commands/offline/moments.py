"""Backup repositories among the paths of a command that reads files: their logs as they were at a moment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from klog.commands.shared.arguments import parse_time
from klog.commands.shared.key_options import KeyOptions
from klog.commands.shared.option_sets import option_set, valued
from klog.formats.errors import UsageError
from klog.replicas.files import is_remote, local_path

if TYPE_CHECKING:
    from klog.backup.restoring.request import RestoreRequest
    from klog.formats.names import TopicPartition


REPOSITORIES: Final = "Backup repositories"
"""The panel of options that are for repositories."""


@option_set(REPOSITORIES)
class RepositoryOptions:
    """The moments at which repositories are read. Without one it is the newest backup."""

    at: list[str] | None = valued(
        "TIME",
        "Of a repository: all that had arrived by this time, ISO 8601 or a span back from now such as 2h. A"
        " second one is for the second repository.",
    )
    backup: list[str] | None = valued(
        "ID", "Of a repository: what this backup has. A second one as with --at."
    )

    def requests(self, wants_topic: Callable[[str], bool]) -> list[RestoreRequest]:
        """The moments that were given, for one repository each. Raises UsageError."""
        if not self.at and not self.backup:
            return []
        from klog.backup.restoring.request import RestoreRequest

        if self.at and self.backup:
            raise UsageError("--at and --backup: give one of both")
        now = datetime.now(UTC)
        times = [parse_time("--at", text, now) for text in self.at or ()]
        return [
            *(RestoreRequest(at_ms=each, wants=wants_topic) for each in times),
            *(RestoreRequest(backup=each, wants=wants_topic) for each in self.backup or ()),
        ]


def numbers_of(text: str | None) -> set[int]:
    """The numbers of --partitions. Raises UsageError."""
    try:
        return {int(each) for each in (text or "").split(",") if each}
    except ValueError:
        raise UsageError(f"--partitions {text!r} are no numbers", cure="write 0,3") from None


@contextmanager
def files_of(
    paths: Sequence[str],
    moments: RepositoryOptions,
    keys: KeyOptions,
    wants_topic: Callable[[str], bool],
    wants: Callable[[TopicPartition], bool],
) -> Iterator[list[str]]:
    """The paths, with a temporary directory for each repository: its logs as they were at the moment.

    Raises UsageError, other KlogErrors as a restore.
    """
    requests = moments.requests(wants_topic)
    repositories = [path for path in paths if _is_repository(path, must_know=bool(requests))]
    if not requests and not repositories:
        yield list(paths)
        return
    from klog.backup.restoring.request import RestoreRequest

    if len(requests) > len(repositories):
        there = "there is one" if len(repositories) == 1 else f"there are {len(repositories)}"
        raise UsageError(
            f"a moment is for a backup repository, and {there if repositories else 'no path is one'}",
            file=paths[0],
            cure="klog backup run makes a repository",
        )
    requests += [RestoreRequest(wants=wants_topic)] * (len(repositories) - len(requests))
    with ExitStack() as stack:
        given = iter(requests)
        yield [
            stack.enter_context(_copied(path, next(given), keys, wants)) if path in repositories else path
            for path in paths
        ]


def _is_repository(path: str, *, must_know: bool) -> bool:
    """As `klog.backup.reading` says, which is not imported for files and log directories."""
    if not is_remote(path):
        if not os.path.isdir(local_path(path)):
            return False
        from klog.backup.names import INFO

        return os.path.exists(os.path.join(local_path(path), INFO))
    from klog.backup.reading import is_repository

    return is_repository(path, must_know=must_know)


@contextmanager
def _copied(
    place: str, request: RestoreRequest, keys: KeyOptions, wants: Callable[[TopicPartition], bool]
) -> Iterator[str]:
    from klog.backup.restoring.copies import copied_logs, plan_copy
    from klog.commands.offline.backing.opening import open_patiently
    from klog.commands.offline.restore_output import note_damage, note_moment, working

    repository = open_patiently(place, keys)
    selected, plan = plan_copy(repository, request, wants)
    note_moment(selected)
    note_damage(plan)
    with ExitStack() as stack:
        with working("Copying", plan.size_bytes) as advance:
            path = stack.enter_context(copied_logs(repository, selected, plan, advance))
        yield path
