"""What a run needs of a source of logs: log directories, or a cluster over the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from klog.backup.model import PartitionRef, PartitionState, Piece, SnapshotObject, Source
from klog.backup.partition_copy import CopyRules, Outcome
from klog.backup.pieces import PieceWriter
from klog.formats.checksums import Bytes
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition


class Candidate(Protocol):
    """A partition as a source has found it.

    `fingerprint` is a hash of all that shows whether it has changed; empty if that cannot be told.
    """

    @property
    def fingerprint(self) -> str: ...

    def new_bytes(self, before: PartitionRef | None) -> int:
        """About how many bytes are to be read; `before` refers to the state before."""

    def copy(
        self,
        previous: PartitionState | None,
        writer: PieceWriter,
        rules: CopyRules,
        problems: list[KlogError],
    ) -> Outcome:
        """The state now, whose pieces are all stored.

        `previous` is the state before. What does not prevent a state is added to `problems`. Raises
        `KlogError`.
        """

    def readings(self, lost: Piece | SnapshotObject, problems: list[KlogError]) -> Iterable[Iterable[Bytes]]:
        """What the log has now in the place of a piece or of a snapshot, in parts that are valid until the
        next one is asked for; several readings if it may be found in several ways.

        Nothing is checked. A replica that cannot be read is added to `problems`. Raises `KlogError`.
        """


@dataclass(frozen=True, slots=True)
class Found:
    """What a source has now.

    `sources` are named in the manifest. `whole` are those of which all partitions were found, so another
    partition of them is gone. `problems` are what cannot be read, and `unlisted` the partitions that have a
    replica there.
    """

    sources: Sequence[Source]
    candidates: Mapping[TopicPartition, Candidate]
    whole: frozenset[Source]
    problems: list[KlogError] = field(default_factory=list)
    unlisted: Set[TopicPartition] = frozenset()


class BackupSource(Protocol):
    """Where logs come from."""

    def find(
        self,
        is_wanted: Callable[[str], bool],
        before: Mapping[TopicPartition, PartitionRef],
        now_ms: int,
    ) -> Found:
        """The partitions of the topics that are wanted.

        `before` are the partitions of the backup before. Raises `KlogError` if the source is not there.
        """
