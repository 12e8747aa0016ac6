"""Reads one partition from its leader: raw batches, as they are in its log.

Rules: the protocol guide on Fetch. Old versions (before KIP-74) cut a batch that is larger than the limit of
the partition; then more is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar
from uuid import UUID

from klog.backup.wire.clients import Client
from klog.client.cluster import PartitionLeader
from klog.client.connection import Connection
from klog.client.epochs import EpochEnd, epoch_end
from klog.client.errors import ClientError, RefusedError
from klog.client.fetcher import NO_EPOCH, fetch, partitions_of, topics_of
from klog.client.offsets import Isolation, request_offsets
from klog.formats.constants import INT32_MAX, NO_LEADER
from klog.formats.names import TopicPartition
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ChannelError
from klog.protocol.fetch_request import FetchPartition, FetchRequest
from klog.protocol.fetch_response import PartitionFetched
from klog.protocol.offset_times import EARLIEST, LATEST

FETCH_BYTES: Final = 2 << 20
_MOST_FETCH_BYTES: Final = 8 << 20
_MOST_CUT_SHARE: Final = 8
_MAX_WAIT_MS: Final = 500
_UNKNOWN: Final = -1
_Answer = TypeVar("_Answer")


class LeaderChangedError(ClientError):
    """The partition has another leader than when its reading began, which may have another log."""


class FetchedBatches:
    """An answer: its whole batches in `table`, the bytes of `data` that were scanned, and the log's ends.

    `log_start_offset` is -1 if the broker does not say it (before Kafka 1.0).
    """

    def __init__(self, answer: PartitionFetched) -> None:
        self.data = answer.records if isinstance(answer.records, memoryview) else memoryview(b"")
        self.high_watermark = answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        self.table = BatchTable()
        kernel.scan(self.data, 0, False, self.table)

    def next_offset(self, offset: int) -> int:
        """Where to go on after these batches, if they were fetched at `offset`."""
        return max(offset, self.table.last_offset[-1] + 1) if len(self.table) else offset


class PartitionReader:
    """Reads a partition from the leader that `begin` finds; `FetchedBatches` are valid as long as they are
    kept.

    Transient errors are retried while the client's time allows it.
    """

    def __init__(self, client: Client, partition: TopicPartition, topic_id: UUID | None) -> None:
        self._client = client
        self._partition = partition
        self._ids: Mapping[str, UUID] = {} if topic_id is None else {partition.topic: topic_id}
        self._names = {topic_id: topic for topic, topic_id in self._ids.items()}
        self._fetch_bytes = FETCH_BYTES
        self.leader = PartitionLeader(NO_LEADER, NO_EPOCH)

    def begin(self) -> None:
        """Take note of who leads the partition now."""
        self.leader = self._current_leader()

    @property
    def place(self) -> str:
        """The leader and the partition, for messages."""
        address = self._client.cluster.address_of(self.leader.leader_id)
        return f"kafka://{address or self.leader.leader_id}/{self._partition}"

    def fetch(self, offset: int) -> FetchedBatches:
        """Batches from the one on that has `offset`; at least one, if the log goes on.

        Raises `LeaderChangedError`, `RefusedError` with OFFSET_OUT_OF_RANGE, `KlogError`.
        """
        while True:
            answer = self._retried(lambda: self._fetched(offset))
            found = FetchedBatches(answer)
            if len(found.table) or not len(found.data) or self._fetch_bytes == INT32_MAX:
                self._ask_for_more_if_cut(found)
                return found
            self._fetch_bytes = min(2 * self._fetch_bytes, INT32_MAX)  # the batch was cut

    def _ask_for_more_if_cut(self, found: FetchedBatches) -> None:
        """The last batch of an answer is cut off and comes again. Of large batches that would be much."""
        cut = len(found.data) - found.table.consumed_bytes
        if _MOST_CUT_SHARE * cut > len(found.data) and self._fetch_bytes < _MOST_FETCH_BYTES:
            self._fetch_bytes *= 2

    def epoch_end(self, epoch: int) -> EpochEnd:
        """Where an epoch ends in the leader's log. Raises as `fetch`, and `UnsupportedApiError`."""
        return self._retried(
            lambda: epoch_end(self._connection(), self._partition, epoch, self.leader.leader_epoch)
        )

    def ends(self) -> tuple[int, int]:
        """The log start offset and the high watermark. Raises as `fetch`."""

        def ask(time: int) -> int:
            return self._retried(
                lambda: request_offsets(self._connection(), {self._partition: time})[self._partition]
            )

        return ask(EARLIEST), ask(LATEST)

    def _current_leader(self) -> PartitionLeader:
        known = self._client.cluster.partitions(self._partition.topic)
        return known.get(self._partition.partition, PartitionLeader(NO_LEADER, NO_EPOCH))

    def _connection(self) -> Connection:
        return self._client.cluster.leader_connection(self.leader.leader_id, [self._partition])

    def _fetched(self, offset: int) -> PartitionFetched:
        wanted = FetchPartition(
            self._partition.partition, self.leader.leader_epoch, offset, NO_EPOCH, _UNKNOWN, self._fetch_bytes
        )
        topics = topics_of([(self._partition.topic, wanted)], self._ids)
        request = FetchRequest(_MAX_WAIT_MS, 1, self._fetch_bytes, Isolation.READ_UNCOMMITTED, topics)
        response = fetch(self._connection(), request, self._client.cluster.timeout_ms)
        [(_, answer)] = partitions_of(response, self._names)
        if answer.error_code != ErrorCode.NONE:
            raise RefusedError(f"reading {self._partition}", answer.error_code, right="Read")
        return answer

    def _retried(self, work: Callable[[], _Answer]) -> _Answer:
        """What `work` gives, tried again after errors that pass. Raises `LeaderChangedError`."""
        client = self._client
        while True:
            if self._current_leader() != self.leader:
                raise LeaderChangedError(f"{self._partition} has another leader")
            try:
                found = work()
            except (ClientError, ChannelError) as error:
                client.cluster.pause_and_refresh(error, [self._partition.topic], client.retry)
                continue
            client.retry.succeeded()
            return found
