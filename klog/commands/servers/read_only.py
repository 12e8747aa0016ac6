"""What `klog serve --read-only` opens: directories, or a moment of a backup repository."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from klog.backup.reading import is_repository, open_backups
from klog.backup.restoring.histories import Detail
from klog.backup.restoring.request import plan_of, select
from klog.backup.retrying import RetryPolicy
from klog.backup.serving.blocks import CACHE_BYTES
from klog.backup.serving.loading import WAIT_S
from klog.backup.serving.opening import served_moment
from klog.commands.shared.cells import human_bytes, human_time
from klog.commands.shared.moment_options import MomentOptions
from klog.formats.errors import UsageError
from klog.formats.names import encode_uuid
from klog.jobs.cores import available_cores
from klog.server.read_only.opening import SCRATCH, OpenedBackup, Opening, opened_backup, read_only_options
from klog.storage.files.scratch_directory import scratch_directory

if TYPE_CHECKING:
    from klog.backup.keys import UserKey
    from klog.backup.restoring.request import RestoreRequest
    from klog.commands.shared.key_options import KeyOptions

_log = logging.getLogger(__name__)


def opening_of(
    places: Sequence[str],
    moment: MomentOptions,
    keys: KeyOptions,
    config_file: str | None,
    options: Sequence[str],
) -> Opening:
    """How these places are opened. Raises UsageError, StorageError."""
    policy = RetryPolicy(limit_s=WAIT_S)
    repositories = [place for place in places if is_repository(place, policy=policy)]
    if not repositories:
        if moment != MomentOptions():
            raise UsageError(
                "--at, --backup, --offsets and --topic are for a backup repository",
                file=places[0],
                cure="klog backup run makes a repository",
            )
        return partial(opened_backup, places, config_file, options)
    if len(places) > 1:
        raise UsageError("a repository is served alone", file=repositories[0])
    return partial(opened_repository, repositories[0], moment.request(), options, keys.key())


@contextmanager
def opened_repository(
    place: str, request: RestoreRequest, options: Sequence[str], key: UserKey | None = None
) -> Iterator[OpenedBackup]:
    """What a broker needs that serves a moment of a repository. The key of an encrypted one is by default
    that of the environment. Raises `KlogError`s.
    """
    begin_s = time.monotonic()
    jobs = available_cores()
    repository = open_backups(place, RetryPolicy(limit_s=WAIT_S), key)
    selected = select(repository, request)
    plan = plan_of(repository, request, selected, jobs=jobs, detail=Detail.CUT)
    for each in plan.partitions:
        for damage in each.view.damage:
            if damage.first_offset < each.cut.end_offset:
                _log.warning(
                    "%s: damaged at its source, and not in the backup: %s; offsets from %d on",
                    each.target,
                    damage.what,
                    damage.first_offset,
                )
    cluster_id = encode_uuid(secrets.token_bytes(16))
    with (
        scratch_directory(SCRATCH) as scratch,
        served_moment(
            repository, plan, selected.manifest, str(Path(scratch) / "logs"), cluster_id, jobs=jobs
        ) as served,
    ):
        for loss in served.losses:
            _log.info("not in the backup: %s", loss)
        _log.info(
            "%d partitions, %s, as of %s, in %.1f s; up to %s of them are kept in memory",
            len(plan.partitions),
            human_bytes(plan.size_bytes),
            human_time(plan.moment_ms),
            time.monotonic() - begin_s,
            human_bytes(CACHE_BYTES),
        )
        own = (*options, *read_only_options(str(Path(scratch) / "logs"), served.broker_id))
        yield OpenedBackup(own, None, served.records)
