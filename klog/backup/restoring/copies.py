"""The logs of a moment as files in a temporary directory, for commands that read files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from klog.backup.repository import Repository
from klog.backup.restoring.cluster import index_settings
from klog.backup.restoring.histories import Detail, OnBytes, ignore_bytes
from klog.backup.restoring.log_directories import Layout, write_log_directories
from klog.backup.restoring.plan import RestorePlan
from klog.backup.restoring.request import RestoreRequest, Selected, identity, metadata_of, plan_of, select
from klog.backup.restoring.run import require_space
from klog.backup.restoring.selection import RepositoryPieces
from klog.backup.restoring.target import RestoreTarget
from klog.formats.errors import MissingInputError
from klog.formats.names import TopicPartition
from klog.jobs.cores import available_cores
from klog.storage.files.scratch_directory import scratch_directory

SCRATCH: Final = "klog-moment-"
"""What the names of the temporary directories begin with."""


def plan_copy(
    repository: Repository, request: RestoreRequest, wants: Callable[[TopicPartition], bool]
) -> tuple[Selected, RestorePlan]:
    """What is copied of the partitions that are wanted. Raises `MissingInputError` if there is none, and as a
    restore.
    """
    selected = select(repository, request)
    plan = plan_of(repository, request, selected, jobs=available_cores(), detail=Detail.CUT)
    chosen = tuple(each for each in plan.partitions if wants(each.view.partition))
    if not chosen:
        raise MissingInputError("has none of the selected partitions", file=repository.place)
    return selected, replace(plan, partitions=chosen)


@contextmanager
def copied_logs(
    repository: Repository, selected: Selected, plan: RestorePlan, on_bytes: OnBytes = ignore_bytes
) -> Iterator[str]:
    """The log directory that a restore would make, without metadata. It is removed at the end.

    `on_bytes` may be called by several threads. Raises `StorageError`, also if there is no space for it.
    """
    topics = {each.view.partition.topic for each in plan.partitions}
    settings = index_settings(metadata_of(repository, selected.manifest), topics)
    replicas = {each.target: (0,) for each in plan.partitions}
    with scratch_directory(SCRATCH) as scratch:
        path = os.path.join(scratch, "logs")
        require_space(plan, replicas, path)
        write_log_directories(
            RepositoryPieces(repository),
            plan,
            RestoreTarget(path, identity(plan)),
            Layout({0: ""}, replicas, settings=settings),
            jobs=available_cores(),
            on_bytes=on_bytes,
        )
        yield path
