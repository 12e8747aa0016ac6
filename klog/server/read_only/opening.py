"""Opens directories read-only: finds what they hold, and gives the configs of a broker that serves it.

The broker is an ordinary one on a scratch directory (`scratch`), with its metadata there, too. Nothing is
deleted, cleaned or created by itself in it, and at the end it is removed.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from klog.cluster_metadata import tree_output
from klog.formats.constants import INT32_MAX
from klog.formats.names import TopicPartition, encode_uuid
from klog.metadata.embedded import FILE_NAME, EmbeddedStore
from klog.server.adoption_run import run_adoption
from klog.server.logs.unowned_logs import unowned_lines
from klog.server.read_only.backup import Backup, find_backup
from klog.server.read_only.damage_search import DamageSearch
from klog.server.read_only.kraft_metadata import as_served, missing_partitions
from klog.server.read_only.scratch import make_scratch
from klog.server.startup.config_reading import read_config
from klog.storage.files.scratch_directory import scratch_directory
from klog.storage.log.earlier_records import EarlierRecords

_log = logging.getLogger(__name__)

SCRATCH: Final = "klog-read-only-"
"""What the names of scratch directories begin with."""

_PROGRESS_EVERY: Final = 100


@dataclass(frozen=True, slots=True)
class OpenedBackup:
    """The `key=value` options of a broker that serves a backup, and the search for damage in it.

    The search is to be started when the broker serves. `earlier` are records that are not in its log
    directory.
    """

    options: tuple[str, ...]
    search: DamageSearch | None = None
    earlier: Mapping[TopicPartition, EarlierRecords] = field(default_factory=dict)


Opening = Callable[[], AbstractContextManager[OpenedBackup]]


@contextmanager
def opened_backup(
    paths: Sequence[str], config_file: str | None, options: Sequence[str]
) -> Iterator[OpenedBackup]:
    """What a broker that serves the paths needs. At the end its scratch directory is removed.

    If the process is killed, the next one removes it.

    Says in the log what is missing, and what damage the ends of segments show. Raises KlogError if nothing
    can be served.
    """
    backup = find_backup(paths)
    known = _report(backup)
    with scratch_directory(SCRATCH) as place:
        directory = Path(place) / "logs"
        directory.mkdir()
        cluster_id = backup.cluster_id or encode_uuid(secrets.token_bytes(16))
        made = make_scratch(backup, directory, cluster_id, _report_progress)
        _log.info(
            "%d partitions, %d bytes in place, %d bytes copied to %s",
            len(backup.logs),
            made.linked_bytes,
            made.copied_bytes,
            place,
        )
        _write_metadata(directory, backup, cluster_id)
        own = (*options, *read_only_options(str(directory), max(backup.broker_id, 0)))
        plan = run_adoption(read_config(config_file, own), dry_run=False, allow_missing=True)
        for line in unowned_lines(plan.left):
            _log.warning("not served: %s", line)
        search = DamageSearch(made.segments, known)
        try:
            yield OpenedBackup(own, search)
        finally:
            search.stop()


def _write_metadata(directory: Path, backup: Backup, cluster_id: str) -> None:
    """Give the scratch directory what the metadata log of KRaft says, if there is one."""
    if backup.metadata is None:
        return
    cluster = backup.metadata.cluster
    for line in backup.metadata.details:
        _log.info("metadata: %s", line)
    for line in (*backup.metadata.notes, *missing_partitions(cluster, backup.logs)):
        _log.warning("%s", line)
    with closing(EmbeddedStore(directory / FILE_NAME)) as store:
        tree_output.write(store, as_served(cluster, cluster_id, backup.logs, max(backup.broker_id, 0)))


def read_only_options(directory: str, broker_id: int) -> tuple[str, ...]:
    """The options of a broker that serves a log directory in which nothing changes by itself."""
    own = {
        "log.dirs": directory,
        "broker.id": broker_id,
        "zookeeper.connect": "",
        "auto.create.topics.enable": "false",
        "log.cleaner.enable": "false",
        "log.retention.ms": -1,
        "log.retention.bytes": -1,
        # Offsets of a backup are old.
        "offsets.retention.minutes": INT32_MAX,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "min.insync.replicas": 1,
    }
    return tuple(f"{name}={value}" for name, value in own.items())


def _report(backup: Backup) -> int:
    """Log what is left out, damaged or different; returns the number of damaged places."""
    for path, reason in backup.skipped:
        _log.info("%s is left out: %s", path, reason)
    damage = backup.damage()
    for line in damage:
        _log.warning("damaged: %s", line)
    for line in backup.differences():
        _log.warning("%s", line)
    return len(damage)


def _report_progress(done: int, total: int) -> None:
    if done % _PROGRESS_EVERY == 0 and done < total:
        _log.info("%d of %d partitions opened", done, total)
