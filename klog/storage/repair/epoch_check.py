"""Checks whether `leader-epoch-checkpoint` fits the batches of its partition.

Rules: Kafka's `LeaderEpochFileCache` (epochs and start offsets ascend, those at and after the log's end are
dropped, the first one starts at the log's start).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from klog.formats.checkpoints import EpochEntry, parse_epochs
from klog.formats.errors import KlogError
from klog.storage.files.files import read_small
from klog.storage.repair.problem import RECOVER, Problem, note


def ascending(epochs_of_segments: Iterable[Iterable[EpochEntry]]) -> list[EpochEntry]:
    """The epochs that begin in the segments of a log; one that is not above those before is left out."""
    found: list[EpochEntry] = []
    for epochs in epochs_of_segments:
        found += [entry for entry in epochs if not found or entry.epoch > found[-1].epoch]
    return found


def epoch_problems(path: str, in_log: Sequence[EpochEntry], start: int, end: int | None) -> list[Problem]:
    """The problems of the file at `path`, given the epochs of the batches, the log's start and its end.

    `end` is None if no segment says it.
    """
    try:
        entries = parse_epochs(read_small(path)).entries
    except KlogError as error:
        kafka = "takes the whole log directory offline"
        return [Problem(path, error.what, kafka, RECOVER, position=error.position_bytes)]
    problems = []
    for one, other in pairwise(entries):
        if one.epoch >= other.epoch or one.start_offset >= other.start_offset:
            what = f"epoch {other.epoch} at {other.start_offset} does not ascend from {one}"
            problems.append(Problem(path, what, "drops the earlier of the two", RECOVER))
    starts = {entry.epoch: entry.start_offset for entry in entries}
    for entry in in_log:
        if end is not None and entry.start_offset >= end:
            continue  # a batch with a wrong offset: Kafka drops epochs at and after the log's end
        known = starts.get(entry.epoch)
        # Epochs before the log's start are removed; the epoch that contains it starts there.
        trimmed = bool(entries) and entry.epoch <= entries[0].epoch and entries[0].start_offset <= start
        if bool(entries) and entry.epoch <= entries[0].epoch and not trimmed:
            what = (
                f"starts at {entries[0].start_offset}, the log at {start}: records were deleted up to there"
            )
            kafka = "has them back if it stops before it writes log-start-offset-checkpoint"
            problems.append(note(path, what, kafka))
        elif not trimmed and (known is None or known > entry.start_offset):
            what = f"batches from offset {entry.start_offset} on have epoch {entry.epoch}, the file says "
            what += "nothing of it" if known is None else f"it starts at {known}"
            kafka = "may truncate followers at a wrong offset; adds only epochs above the latest"
            cure = f"delete the file, then {RECOVER}"
            problems.append(Problem(path, what, kafka, cure, offset=entry.start_offset))
    if entries and end is not None and entries[-1].start_offset > end:
        what = f"epoch {entries[-1].epoch} starts at {entries[-1].start_offset}, after the log's end {end}"
        problems.append(note(path, what, "drops the epoch at its next start", RECOVER))
    return problems
