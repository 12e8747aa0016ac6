"""Brings the state of a partition up to date from its leader.

Batches are fetched up to the high watermark. The next ones are fetched while these are stored. Reading goes
on until it has caught up with the high watermark: a record that was compacted away meanwhile has a later one
of its key, and that one is then in the backup, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from klog.backup.model import PartitionRef, PartitionState, Piece, SnapshotObject
from klog.backup.partition_copy import MOST_TRIES, CopyRules, Outcome
from klog.backup.pieces import PieceWriter
from klog.backup.rereading import batches_between
from klog.backup.store import StoreError
from klog.backup.wire.clients import Client, Clients
from klog.backup.wire.comparing import kept_of
from klog.backup.wire.log import Log, Origin
from klog.backup.wire.reader import FetchedBatches, LeaderChangedError, PartitionReader
from klog.client.errors import ClientError, RefusedError, UnknownTopicError
from klog.formats.checksums import Bytes
from klog.formats.errors import KlogError, StorageError
from klog.formats.names import TopicPartition, encode_uuid
from klog.protocol.error_codes import ErrorCode

_MOST_CHASES: Final = 16
"""How often the high watermark is followed after the one at the beginning was reached."""


def fingerprint(topic_id: UUID | None, leader_epoch: int, log_start_offset: int, high_watermark: int) -> str:
    """What shows whether a partition has changed; empty if the leader epoch is unknown (before Kafka 2.1)."""
    if leader_epoch < 0:
        return ""
    return f"{topic_id}/{leader_epoch}/{log_start_offset}/{high_watermark}"


@dataclass(frozen=True, slots=True)
class RefusedPartition:
    """A partition that cannot be read now; the state before is kept."""

    error: KlogError
    fingerprint: str = ""

    def new_bytes(self, before: PartitionRef | None) -> int:  # noqa: ARG002 (of the protocol)
        """None."""
        return 0

    def copy(self, *_: object) -> Outcome:
        """Raises the error."""
        raise self.error

    def readings(self, *_: object) -> Iterable[Iterable[Bytes]]:
        """Raises the error."""
        raise self.error


@dataclass(frozen=True, slots=True)
class WirePartition:
    """A partition of the cluster, with the ends of its log when the run began. `source` is the cluster."""

    clients: Clients
    source: str
    partition: TopicPartition
    topic_id: UUID | None
    leader_epoch: int
    log_start_offset: int
    high_watermark: int

    @property
    def fingerprint(self) -> str:
        """See `fingerprint`."""
        return fingerprint(self.topic_id, self.leader_epoch, self.log_start_offset, self.high_watermark)

    @property
    def topic_id_text(self) -> str | None:
        """The id in Kafka's text form, None if an old broker has created the topic."""
        return None if self.topic_id is None else encode_uuid(self.topic_id.bytes)

    def new_bytes(self, before: PartitionRef | None) -> int:
        """An estimate by the records that the backup has; 0 if it has none."""
        if before is None or before.end_offset <= before.log_start_offset:
            return 0
        share = before.size_bytes / (before.end_offset - before.log_start_offset)
        return int(share * max(0, self.high_watermark - before.end_offset))

    def copy(
        self,
        previous: PartitionState | None,
        writer: PieceWriter,
        rules: CopyRules,
        problems: list[KlogError],
    ) -> Outcome:
        """Fetch what the state before does not have.

        If that fails in the middle, what was read is kept, and the error is a problem.
        """
        try:
            return _Copying(self, writer, rules, self.clients.get()).run(previous, problems)
        except UnknownTopicError:
            return Outcome(None)

    def readings(
        self,
        lost: Piece | SnapshotObject,
        problems: list[KlogError],  # noqa: ARG002 (of the protocol)
    ) -> Iterator[Iterable[Bytes]]:
        """What the leader has. It gives no snapshots."""
        if isinstance(lost, Piece) and self.log_start_offset < lost.end_offset <= self.high_watermark:
            yield self._batches_of(lost)

    def _batches_of(self, piece: Piece) -> Iterator[memoryview]:
        reader = PartitionReader(self.clients.get(), self.partition, self.topic_id)
        reader.begin()
        offset = max(piece.first_offset, self.log_start_offset)
        while offset < piece.end_offset:
            found = reader.fetch(offset)
            yield batches_between(found.data, found.table, piece.first_offset, piece.end_offset)
            following = found.next_offset(offset)
            if following == offset:
                return
            offset = following


class _Copying:
    def __init__(self, found: WirePartition, writer: PieceWriter, rules: CopyRules, client: Client) -> None:
        self._found = found
        self._writer = writer
        self._rules = rules
        self._client = client
        self._reader = PartitionReader(client, found.partition, found.topic_id)
        self._log_start = found.log_start_offset
        self._high_watermark = found.high_watermark
        self._state: PartitionState | None = None
        self._has_progress = False

    def run(self, previous: PartitionState | None, problems: list[KlogError]) -> Outcome:
        """Copy, and begin again at what was read if the leader has changed meanwhile."""
        if previous is not None and self._is_same_topic(previous):
            self._state = previous
        try:
            for attempt in range(MOST_TRIES):
                self._reader.begin()
                try:
                    if attempt:
                        self._log_start, self._high_watermark = self._reader.ends()
                    is_complete = self._copy()
                except LeaderChangedError:
                    continue
                except RefusedError as error:
                    if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                        raise
                    continue
                return self._outcome(problems, is_complete=is_complete)
            raise StorageError(
                f"the leaders of {self._found.partition} change faster than it can be read",
                cure="the backup has what was read; run it again",
            )
        except (StoreError, UnknownTopicError):
            raise
        except KlogError as error:
            if not self._has_progress:
                raise
            problems.append(error)
            return Outcome(self._state)

    def _is_same_topic(self, previous: PartitionState) -> bool:
        own = self._found.topic_id_text
        is_other = None not in (own, previous.topic_id) and own != previous.topic_id
        return previous.source == self._found.source and not is_other

    def _outcome(self, problems: list[KlogError], *, is_complete: bool) -> Outcome:
        if not is_complete:
            problems.append(
                StorageError(
                    "is compacted, and records arrive faster than they are read: some keys may be missing",
                    cure="raise --throttle, or run it again when less is written",
                )
            )
        seen = fingerprint(
            self._found.topic_id, self._reader.leader.leader_epoch, self._log_start, self._high_watermark
        )
        return Outcome(self._state, fingerprint=seen)

    def _copy(self) -> bool:
        """Read up to the high watermark. False if a compacted log has grown faster than it was read."""
        before = self._state
        kept = (
            None if before is None else kept_of(before, self._reader, self._log_start, self._high_watermark)
        )
        start = self._log_start if kept is None else kept.end_offset
        log = Log(self._writer, self._found.partition, kept, start)
        try:
            self._fetch(log)
        finally:
            try:
                self._state = log.state(self._origin(), max(self._log_start, 0))
                self._has_progress = self._has_progress or log.end_offset > start
            finally:
                log.discard()
        return not log.has_gaps or log.end_offset >= self._high_watermark

    def _origin(self) -> Origin:
        return Origin(
            self._found.topic_id_text,
            self._found.source,
            self._reader.leader.leader_id,
            self._high_watermark,
            self._rules.now_ms(),
        )

    def _fetch(self, log: Log) -> None:
        goal, chases = self._high_watermark, _MOST_CHASES
        if log.end_offset >= goal:
            return
        waiting = self._client.cluster.new_retry()
        answer = self._reader.fetch(log.end_offset)
        while log.end_offset < goal:
            following = answer.next_offset(log.end_offset)
            self._high_watermark = max(answer.high_watermark, following)
            self._log_start = max(self._log_start, answer.log_start_offset)
            if following >= goal and chases:
                goal, chases = self._high_watermark, chases - 1
            if following == log.end_offset:
                error = ClientError(f"the leader of {self._found.partition} gives no records at {following}")
                waiting.failed(error)
                answer = self._reader.fetch(following)
                continue
            waiting.succeeded()
            with self._ahead(following if following < goal else None) as pending:
                log.add(answer.data, answer.table, self._reader.place, self._high_watermark)
                self._writer.on_bytes(answer.table.consumed_bytes)
            if pending is not None:
                answer = pending.result()
                if log.end_offset != following:
                    answer = self._reader.fetch(log.end_offset)

    @contextmanager
    def _ahead(self, offset: int | None) -> Iterator[Future[FetchedBatches] | None]:
        """Fetch at an offset meanwhile. The client is free again at the end."""
        pending = None if offset is None else self._client.ahead.submit(self._reader.fetch, offset)
        try:
            yield pending
        finally:
            if pending is not None:
                wait([pending])
