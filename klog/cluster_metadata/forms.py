"""What all forms of a cluster's metadata have in common: what reading one gives, and what one cannot hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from klog.cluster_metadata.model import Cluster
from klog.formats.errors import KlogError, StorageError, UsageError

OnProblem: TypeAlias = Callable[[KlogError], None]
"""Is told what cannot be read; reading goes on without it. Without one the error is raised."""


class Reading(NamedTuple):
    """A cluster, the kind of form that it was read from, and what else there is to know, in sentences.

    `details` say what was read, `notes` what may be missing. A live source says which brokers run. `users`
    are directories that a process is using, with its name.
    """

    cluster: Cluster
    form: str
    notes: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    is_live: bool = False
    users: tuple[tuple[str, str], ...] = ()


class Held(NamedTuple):
    """The part of a cluster that a form can hold, and what is lost, in words."""

    cluster: Cluster
    losses: tuple[str, ...]


def raise_problem(error: KlogError) -> None:
    """The `OnProblem` that refuses."""
    raise error


def require_stopped(reading: Reading) -> None:
    """Refuses brokers that run, and directories in use. Raises UsageError, StorageError."""
    for directory, user in reading.users:
        raise StorageError(
            f"{user} is using this directory, and may change the metadata",
            file=directory,
            cure="stop all nodes of the cluster first",
        )
    if reading.is_live and reading.cluster.brokers:
        ids = ", ".join(map(str, sorted(reading.cluster.brokers)))
        raise UsageError(f"brokers are running: {ids}", cure="stop all brokers of the cluster first")


def require_secrets(cluster: Cluster) -> None:
    """Refuses a cluster whose secrets were left out. Raises UsageError."""
    hidden = cluster.hidden_secrets
    if hidden:
        rest = f" and {len(hidden) - 3} more" if len(hidden) > 3 else ""
        raise UsageError(
            f"secrets were left out: {', '.join(hidden[:3])}{rest}",
            cure="read the metadata where it has its secrets",
        )
