"""Reads a cluster's metadata from KRaft directories: one, or those of several controllers.

A directory does not say which of its last records are committed. So the quorum's rule for elections decides
between directories: the log with the latest epoch, then the longest one, has everything that was committed,
if a majority of the voters is among them.
"""

from __future__ import annotations

from collections.abc import Sequence

from klog.cluster_metadata.forms import OnProblem, Reading, raise_problem
from klog.cluster_metadata.kraft_log import KRaftLog, read_log
from klog.formats.errors import UsageError

FORM = "KRaft directory"


def read(directories: Sequence[str], on_problem: OnProblem = raise_problem) -> Reading:
    """The cluster in the directories of one cluster's nodes, one of each node.

    Raises UsageError (directories of different clusters), StorageError, `FormatError`.
    """
    logs = [read_log(directory, on_problem) for directory in directories]
    chosen = max(logs, key=lambda log: log.place)
    cluster_id = _same_cluster(logs)
    return Reading(
        chosen.replay.cluster(cluster_id, chosen.epoch),
        FORM,
        (*chosen.notes, *_disagreements(logs, chosen), *_missing_voters(logs, chosen)),
        (_position(chosen),),
    )


def _same_cluster(logs: Sequence[KRaftLog]) -> str | None:
    ids = {log.identity.cluster_id: log for log in logs if log.identity is not None}
    if len(ids) > 1:
        named = ", ".join(f"{log.directory} of {cluster_id}" for cluster_id, log in ids.items())
        raise UsageError(f"the directories belong to different clusters: {named}", cure="name those of one")
    return next(iter(ids), None)


def _position(log: KRaftLog) -> str:
    since = "no snapshot" if log.snapshot is None else f"the snapshot up to offset {log.snapshot_end}"
    return f"{log.directory}: {since}, and the log up to offset {log.end_offset} in epoch {log.epoch}"


def _disagreements(logs: Sequence[KRaftLog], chosen: KRaftLog) -> list[str]:
    return [
        f"{log.directory} ends at offset {log.end_offset} in epoch {log.epoch}, {chosen.directory} at offset"
        f" {chosen.end_offset} in epoch {chosen.epoch}: the latter counts, as in an election of the quorum"
        for log in logs
        if log.place != chosen.place
    ]


def _missing_voters(logs: Sequence[KRaftLog], chosen: KRaftLog) -> list[str]:
    """Says that records may be missing, or not committed, if there is no majority of the voters."""
    voters = chosen.voters
    ids = {log.identity.node_id for log in logs if log.identity is not None}
    present = len(voters & ids)
    if not voters or present > len(voters) // 2:
        return []
    which = f"{present} of {len(voters)} voters" if present else "no voter"
    note = (
        f"this is the metadata of {which}: later records may be elsewhere, and those after offset"
        f" {chosen.snapshot_end} may not be committed; name the directories of a majority"
        f" of {', '.join(map(str, sorted(voters)))} to be sure"
    )
    return [note]
