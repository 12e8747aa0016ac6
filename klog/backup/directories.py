"""Log directories as the source of a run: their replicas, of which the best one is copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from klog.backup.choosing import in_order_of_choice
from klog.backup.model import PartitionRef, PartitionState, Piece, SnapshotObject
from klog.backup.partition_copy import CopyRules, Outcome, copy_partition
from klog.backup.pieces import PieceWriter
from klog.backup.rereading import batches_of, snapshots_of
from klog.backup.scanning import Listed, fingerprint, scan
from klog.backup.sources import Found
from klog.backup.store import StoreError
from klog.formats.checksums import Bytes
from klog.formats.errors import KlogError, StorageError
from klog.formats.names import TopicPartition


@dataclass(frozen=True, slots=True)
class LogDirectories:
    """The log directories at or below `paths`."""

    paths: Sequence[str]

    def find(
        self,
        is_wanted: Callable[[str], bool],
        before: Mapping[TopicPartition, PartitionRef],  # noqa: ARG002 (of the protocol)
        now_ms: int,
    ) -> Found:
        """List the directories. Raises `UsageError`, `MissingInputError`."""
        found = scan(self.paths)
        return Found(
            tuple(each.source for each in found.log_directories),
            {
                partition: _Replicas(listed, fingerprint(listed, now_ms))
                for partition, listed in found.replicas.items()
                if is_wanted(partition.topic)
            },
            frozenset(each.source for each in found.log_directories if each.is_whole),
            found.problems,
            found.unlisted,
        )


@dataclass(frozen=True, slots=True)
class _Replicas:
    """The replicas of a partition."""

    replicas: Sequence[Listed]
    fingerprint: str

    def new_bytes(self, before: PartitionRef | None) -> int:
        """A replica's bytes, without what the backup has."""
        size = max(sum(file.stat[0] for file in listed.segments()) for listed in self.replicas)
        return max(0, size - (0 if before is None else before.size_bytes))

    def copy(
        self,
        previous: PartitionState | None,
        writer: PieceWriter,
        rules: CopyRules,
        problems: list[KlogError],
    ) -> Outcome:
        """Copy the best replica; if it is damaged, one that has all that the best one should have."""
        first: Outcome | None = None
        failure: StorageError | None = None
        for listed in in_order_of_choice(self.replicas, problems, log_end=rules.log_end):
            try:
                outcome = copy_partition(listed, previous, writer, rules)
            except StoreError:
                raise
            except StorageError as error:
                problems.append(error)
                failure = failure or error
                continue
            problems += outcome.problems
            if first is None or _is_better(outcome.state, first.state):
                first = outcome
            if first.state is None or not first.state.damage:
                break
        if first is None:
            raise failure or StorageError("has no replica in use", file=self.replicas[0].path)
        return first

    def readings(self, lost: Piece | SnapshotObject, problems: list[KlogError]) -> Iterator[Iterable[Bytes]]:
        """What each of the replicas has."""
        for listed in self.replicas:
            if isinstance(lost, Piece):
                yield _reading(batches_of(listed, lost), problems)
            else:
                yield _reading(snapshots_of(listed, lost.offset), problems)


def _reading(parts: Iterator[Bytes], problems: list[KlogError]) -> Iterator[Bytes]:
    """The parts up to the first one that cannot be read."""
    try:
        yield from parts
    except StorageError as error:
        problems.append(error)


def _is_better(state: PartitionState | None, than: PartitionState | None) -> bool:
    """Whether a state without damage has all that the damaged one would have."""
    if state is None or than is None:
        return False
    epochs = [max((entry.epoch for entry in each.epochs), default=-1) for each in (state, than)]
    return not state.damage and epochs[0] == epochs[1] and state.end_offset >= than.end_offset
