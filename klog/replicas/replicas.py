"""Merges the replicas of a partition to one log: chooses one, fills its gaps from others, lists differences.

The replica with the highest leader epoch is chosen, and among those the longest: the others would follow it
and truncate what they have beyond it. If it lacks offsets (a lost or unreadable file, a log that ends early),
they come from other replicas, as far as those agree with it. Records that others hold instead are a
`Divergence`. Offsets below the chosen replica's log start offset are deleted, even if another replica still
has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from klog.formats.constants import INT64_MAX
from klog.formats.errors import StorageError
from klog.formats.names import DirectoryState
from klog.replicas.divergence import common_end, first_difference
from klog.replicas.recorded_ends import is_unchanged, recorded_end
from klog.replicas.replica_contents import Extent, ReplicaContents, read_contents
from klog.replicas.replica_files import Found, Replica
from klog.replicas.splits import Divergence, LostRange

_SKIPPED_REASONS = {
    DirectoryState.FUTURE: "a copy that a move between log directories has not finished",
    DirectoryState.STRAY: "a replica that the broker was no longer assigned",
    DirectoryState.DELETE: "a topic or replica that was being deleted",
}


@dataclass(frozen=True, slots=True)
class MergedLog:
    """The log of a partition, merged from its replicas.

    `extents` ascend and do not overlap; the first starts at or above the log start offset. `all_contents` are
    the replicas, the chosen one first. `fallbacks` are the extents of each other replica that agree with it:
    data that is damaged in the chosen one may be valid there.
    """

    all_contents: tuple[ReplicaContents, ...]
    extents: tuple[Extent, ...]
    log_start_offset: int
    log_end_offset: int
    lost: tuple[LostRange, ...]
    divergences: tuple[Divergence, ...]
    fallbacks: tuple[tuple[Extent, ...], ...]


def merge(
    replicas: Sequence[Replica], found: Found, *, include_deleted: bool, from_offset: int = 0
) -> MergedLog:
    """The log of a partition with at least one replica.

    Ignored and unreadable files are added to `found`. `include_deleted` adds offsets below the log start
    offset and segments that have left the log. Offsets below `from_offset` are not needed: if there is only
    one replica, the segments below are not read.
    """
    current = current_replicas(replicas, found)
    all_contents = [
        read_contents(replica, found, from_offset if len(current) == 1 else 0) for replica in current
    ]
    all_contents.sort(key=lambda one: one.replica.directory)
    all_contents.sort(key=rank, reverse=True)
    chosen = all_contents[0]
    divergences: list[Divergence] = []
    sources: list[tuple[ReplicaContents, int]] = []
    for other in all_contents[1:]:
        agreed, differences = _compare_with(chosen, other, found)
        divergences += differences
        sources.append((other, agreed))
    fallbacks = tuple(tuple(_before(other.extents, agreed)) for other, agreed in sources)
    log_start = chosen.log_start_offset
    for one in all_contents:
        removed = replace(one.replica, segments=one.replica.deleted, swaps=(), deleted=())
        if include_deleted and removed.segments:
            sources.append((read_contents(removed, found), INT64_MAX))
        else:
            reason = "has left the log, its deletion was under way"
            found.skipped += [(segment.log, reason) for segment in removed.segments]
    if include_deleted:
        firsts = [one.first_offset for one, _ in [(chosen, 0), *sources] if one.extents]
        log_start = min(firsts, default=log_start)
    extents = _from(chosen.extents, log_start)
    for source, agreed in sources:
        extents = _with_gaps_filled(chosen, extents, source.extents, log_start, agreed)
    log_end = max(log_start, chosen.end_offset, *(extent.end_offset for extent in extents[-1:]))
    lost = _missing(chosen, extents, log_start, log_end)
    return MergedLog(
        tuple(all_contents),
        tuple(extents),
        min(log_start, log_end),
        log_end,
        tuple(lost),
        tuple(divergences),
        fallbacks,
    )


def rank(contents: ReplicaContents) -> tuple[int, int, int]:
    """The order in which replicas are chosen: the greatest one is the log that the others would follow."""
    return contents.leader_epoch, contents.end_offset, -contents.first_offset


def current_replicas(replicas: Sequence[Replica], found: Found) -> list[Replica]:
    """The replicas in use; if there are none, those in directories of other states."""
    for states in (
        (DirectoryState.CURRENT,),
        (DirectoryState.FUTURE, DirectoryState.STRAY),
        (DirectoryState.DELETE,),
    ):
        current = [replica for replica in replicas if replica.state in states and _has_files(replica)]
        if current:
            break
    else:
        return list(replicas)
    for replica in replicas:
        if replica not in current and replica.state in _SKIPPED_REASONS:
            found.skipped.append((replica.directory, _SKIPPED_REASONS[replica.state]))
    return current


def _has_files(replica: Replica) -> bool:
    return bool(replica.segments or replica.swaps or replica.deleted)


def _compare_with(
    chosen: ReplicaContents, other: ReplicaContents, found: Found
) -> tuple[int, list[Divergence]]:
    """The offset up to which `other` agrees with `chosen`, and the divergences after it."""
    ids = chosen.replica.topic_id, other.replica.topic_id
    if None not in ids and ids[0] != ids[1]:
        reason = f"it is another topic of the same name (topic id {ids[1]}, chosen is {ids[0]})"
        return 0, _divergences(chosen, other, other.first_offset, reason)
    agreed = common_end(chosen.replica.epochs, other.replica.epochs)
    unknown = not chosen.replica.epochs or not other.replica.epochs
    if unknown and other.leader_epoch < chosen.leader_epoch:
        agreed = chosen.end_offset  # it is not known what a leader of another epoch wrote after that
    try:
        agreed = first_difference(chosen, other, agreed)
    except StorageError as error:
        found.problems.append(error)
    reason = reason_chosen(chosen, other)
    return agreed, _divergences(chosen, other, max(agreed, other.first_offset), reason)


def reason_chosen(chosen: ReplicaContents, other: ReplicaContents) -> str:
    """Why a replica is chosen before another one."""
    if chosen.leader_epoch > other.leader_epoch:
        return f"leader epoch {chosen.leader_epoch} is above {other.leader_epoch}"
    if chosen.end_offset > other.end_offset:
        return f"in the same leader epoch its log is longer: to {chosen.end_offset}, not {other.end_offset}"
    return "epoch and length are the same: the first by its path was taken"


def _divergences(
    chosen: ReplicaContents, other: ReplicaContents, first_offset: int, reason: str
) -> list[Divergence]:
    """The ranges of `other` from an offset on: within the chosen log, and beyond its end."""
    partition = chosen.replica.partition
    first = max(first_offset, chosen.replica.log_start_offset or 0)
    middle = min(max(first, chosen.end_offset), other.end_offset)
    ranges = ((first, middle, reason), (middle, other.end_offset, f"{reason}, and it ends there"))
    return [
        Divergence(*partition, start, end, chosen.replica.directory, other.replica.directory, why)
        for start, end, why in ranges
        if start < end
    ]


def _before(extents: Iterable[Extent], end_offset: int) -> list[Extent]:
    """The parts of extents before an offset."""
    return [
        extent._replace(end_offset=min(extent.end_offset, end_offset))
        for extent in extents
        if extent.first_offset < end_offset
    ]


def _from(extents: Iterable[Extent], first_offset: int) -> list[Extent]:
    """The parts of extents from an offset on."""
    return [
        extent._replace(first_offset=max(extent.first_offset, first_offset))
        for extent in extents
        if extent.end_offset > first_offset
    ]


def _with_gaps_filled(
    chosen: ReplicaContents, extents: list[Extent], source: Sequence[Extent], log_start: int, agreed_end: int
) -> list[Extent]:
    """`extents` with their gaps filled from `source`, as far as it has these offsets before `agreed_end`."""
    added = []
    for first, end in _gaps(chosen, extents, log_start):
        low, high = first, min(end, agreed_end)
        added += [
            extent._replace(
                first_offset=max(extent.first_offset, low), end_offset=min(extent.end_offset, high)
            )
            for extent in source
            if max(extent.first_offset, low) < min(extent.end_offset, high)
        ]
    return sorted([*extents, *added], key=attrgetter("first_offset"))


def _gaps(chosen: ReplicaContents, extents: Sequence[Extent], log_start: int) -> list[tuple[int, int]]:
    """The ranges of missing offsets; the last one is everything after the log.

    A gap after batches that were cleaned is no missing range: the cleaner leaves gaps.
    """
    holes = []
    at = log_start
    dense = True
    cleaned_to = chosen.replica.cleaned_to or 0
    unreadable = [(lost.first_offset, lost.end_offset) for lost in chosen.lost]
    for extent in extents:
        first = extent.first_offset
        lost = any(
            low is not None and high is not None and low < first and at < high for low, high in unreadable
        )
        if at < first and (lost or (dense and first > cleaned_to)):
            holes.append((at, first))
        at, dense = extent.end_offset, extent.end.dense
    if at < chosen.end_offset and dense:
        holes.append((at, chosen.end_offset))  # the last segment is empty and starts after the last record
        at = chosen.end_offset
    holes.append((at, INT64_MAX))
    return holes


def _missing(
    chosen: ReplicaContents, extents: Sequence[Extent], log_start: int, log_end: int
) -> list[LostRange]:
    """The ranges that no replica has, each once, with the unreadable file that held it if there is one."""
    lost = []
    partition, directory = chosen.replica.partition, chosen.replica.directory
    for first, end in _gaps(chosen, extents, log_start):
        if end == INT64_MAX:
            continue
        causes = [one for one in chosen.lost if _overlap(one, first, end)]
        if not causes:
            reason = "no segment holds these offsets: a file is missing, or the topic is compacted"
            lost.append(LostRange(*partition, directory, None, None, first, end, reason))
        for cause in causes:
            low, high = max(first, cause.first_offset or 0), min(end, cause.end_offset or end)
            lost.append(replace(cause, first_offset=low, end_offset=high))
    lost += [one for one in chosen.lost if one.first_offset is not None and one.first_offset >= log_end]
    known_end, record = recorded_end(chosen.replica)
    is_reported = any(one.first_offset == log_end for one in lost)
    if known_end > log_end and not is_reported and is_unchanged(chosen.replica):
        reason = f"the log ends at {log_end}, but {record}"
        lost.append(LostRange(*partition, directory, None, None, log_end, known_end, reason))
    return lost


def _overlap(lost: LostRange, first: int, end: int) -> bool:
    return (lost.first_offset or 0) < end and first < (lost.end_offset or INT64_MAX)
