"""Reads assigned partitions from their leaders as a consumer does: whole batches, without a group.

Rules: the protocol guide on Fetch, KIP-74 (the first batch always comes whole, later ones may be cut), KIP-98
(an answer lists aborted transactions beside the records). Every request is a full one, without a session.
Requests name topics, so any broker since 0.11 understands them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from klog.client.cluster import Cluster
from klog.client.connection import Connection
from klog.client.errors import ClientError, RefusedError
from klog.client.offsets import Isolation, list_offsets
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import ChannelError
from klog.protocol.fetch_request import (
    TOPIC_IDS_FROM,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    encode_fetch_request,
)
from klog.protocol.fetch_response import FetchResponse, PartitionFetched, decode_fetch_response
from klog.protocol.offset_times import EARLIEST, LATEST

_MAX_BYTES: Final = 50 << 20
_MAX_PARTITION_BYTES: Final = 1 << 20
_NO_LOG_START: Final = -1


class Fetched(NamedTuple):
    """What one partition gave: batches as on disk, the last of which may be cut off.

    `aborted` are (producer id, first offset) pairs, for committed readers. `end_offset` is how far this
    reader may read now: the high watermark, or the last stable offset.
    """

    partition: TopicPartition
    position: int
    records: memoryview
    aborted: Sequence[tuple[int, int]]
    end_offset: int


class Jumped(NamedTuple):
    """A position that the broker does not have (any more, or yet), and the offset to go on at."""

    partition: TopicPartition
    from_offset: int
    to_offset: int


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How much to ask for at a time, and how long all leaders together may wait for `min_bytes`."""

    isolation: Isolation = Isolation.READ_UNCOMMITTED
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = _MAX_BYTES
    max_partition_bytes: int = _MAX_PARTITION_BYTES


class Fetcher:
    """Reads partitions from given positions on. The caller moves `positions` with `advance`."""

    def __init__(
        self, cluster: Cluster, positions: Mapping[TopicPartition, int], settings: FetchSettings
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self.positions = {TopicPartition(*partition): offset for partition, offset in positions.items()}
        """The next offset to read of each partition that is still read."""
        self._retry = cluster.new_retry()

    def advance(self, partition: TopicPartition, position: int) -> None:
        """Set the next offset to read. The next request also asks for this partition last."""
        self.positions.pop(partition)
        self.positions[partition] = position

    def drop(self, partition: TopicPartition) -> None:
        """Stop reading a partition."""
        self.positions.pop(partition, None)

    def poll(self) -> Iterator[Fetched | Jumped]:
        """Send one request to every leader in turn and give what comes; partitions without news come empty.

        Retries while leaders move. Raises ClientError, ChannelError if that takes too long.
        """
        leaders = self._cluster.by_leader(self.positions)
        max_wait_ms = max(self._settings.max_wait_ms // max(len(leaders), 1), 1)
        for leader_id, partitions in leaders.items():
            try:
                answers = self._fetch(leader_id, partitions, max_wait_ms)
            except (ClientError, ChannelError) as error:
                self._pause_and_refresh(error)
                continue
            yield from self._results(answers)

    def _pause_and_refresh(self, error: KlogError) -> None:
        self._cluster.pause_and_refresh(error, {topic for topic, _ in self.positions}, self._retry)

    def _fetch(
        self, leader_id: int, partitions: Sequence[TopicPartition], max_wait_ms: int
    ) -> list[tuple[TopicPartition, PartitionFetched]]:
        connection = self._cluster.leader_connection(leader_id, partitions)
        settings = self._settings
        request = FetchRequest(
            max_wait_ms,
            settings.min_bytes,
            settings.max_bytes,
            int(settings.isolation),
            topics_of((partition.topic, self._request_of(partition)) for partition in partitions),
        )
        return list(partitions_of(fetch(connection, request, self._cluster.timeout_ms)))

    def _request_of(self, partition: TopicPartition) -> FetchPartition:
        return FetchPartition(
            partition.partition,
            NO_EPOCH,
            self.positions[partition],
            NO_EPOCH,
            _NO_LOG_START,
            self._settings.max_partition_bytes,
        )

    def _results(
        self, answers: Iterable[tuple[TopicPartition, PartitionFetched]]
    ) -> Iterator[Fetched | Jumped]:
        failure: RefusedError | None = None
        for partition, answer in answers:
            if partition not in self.positions:
                continue  # the caller dropped it while it took the answers before
            code = error_code(answer.error_code)
            if code is ErrorCode.NONE:
                yield self._fetched(partition, answer)
            elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
                yield self._jump(partition)
            else:
                failure = RefusedError(f"reading {partition}", code)
                if not code.retriable:
                    raise failure
        if failure is not None:
            self._pause_and_refresh(failure)
        else:
            self._retry.succeeded()

    def _fetched(self, partition: TopicPartition, answer: PartitionFetched) -> Fetched:
        committed = self._settings.isolation is Isolation.READ_COMMITTED
        records = answer.records if isinstance(answer.records, memoryview) else memoryview(b"")
        return Fetched(
            partition,
            self.positions[partition],
            records,
            answer.aborted_transactions or (),
            answer.last_stable_offset if committed else answer.high_watermark,
        )

    def _jump(self, partition: TopicPartition) -> Jumped:
        """Go on at the first offset of the log, or at its end if the log ends before the position."""
        position = self.positions[partition]
        earliest = list_offsets(self._cluster, {partition: EARLIEST})[partition]
        target = earliest
        if position > earliest:
            target = list_offsets(self._cluster, {partition: LATEST}, self._settings.isolation)[partition]
        self.advance(partition, target)
        return Jumped(partition, position, target)


# -- Sends one Fetch request to one broker and reads its answer, for consumers and for followers -------------
# Rules: the protocol guide on Fetch. The request carries everything that KIP-227 (sessions), KIP-320 and
# KIP-595 (epochs), KIP-516 (topic ids) and KIP-903 (replica state) put into it. Records stay in the
# answer's buffer; nothing here reads a batch.

CONSUMER: Final = -1
NO_EPOCH: Final = -1


def fetch(connection: Connection, request: FetchRequest, timeout_ms: int) -> FetchResponse:
    """Send a request in the highest version that both sides support, and wait for the answer.

    A request in which a topic has no id is sent in a version that names topics. `timeout_ms` limits the
    answer beyond the request's own `max_wait_ms`. Raises ChannelError, UnsupportedApiError, and RefusedError
    for an error of the whole request; partitions carry errors of their own.
    """
    ids = [topic.topic_id for topic in request.topics] + [topic.topic_id for topic in request.forgotten]
    by_name = None in ids
    version = connection.version_of(ApiKey.FETCH, TOPIC_IDS_FROM - 1 if by_name else None)
    response = connection.request(
        ApiKey.FETCH,
        version,
        (encode_fetch_request(version, request),),
        decode_fetch_response,
        timeout_ms + request.max_wait_ms,
    )
    if response.error_code != ErrorCode.NONE:
        raise RefusedError(f"reading from {connection}", response.error_code)
    return response


def topics_of(
    partitions: Iterable[tuple[str, FetchPartition]], topic_ids: Mapping[str, UUID] | None = None
) -> list[FetchTopic]:
    """The request's topics, for (topic, partition) pairs in the order in which they are to be read."""
    ids = topic_ids or {}
    topics: dict[str, list[FetchPartition]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [FetchTopic(name, ids.get(name), wanted) for name, wanted in topics.items()]


def partitions_of(
    response: FetchResponse, topic_names: Mapping[UUID, str] | None = None
) -> Iterator[tuple[TopicPartition, PartitionFetched]]:
    """What each partition gave; `topic_names` names the topics of an answer that has only their ids."""
    names = topic_names or {}
    for topic in response.topics:
        name = topic.name or (names.get(topic.topic_id, "") if topic.topic_id is not None else "")
        for partition in topic.partitions:
            yield TopicPartition(name, partition.partition), partition
