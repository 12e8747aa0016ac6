"""Reading assigned partitions from their leaders: whole batches as the broker stores them, no group needed.

Rules: the protocol guide on Fetch, KIP-74 (the first batch always comes whole, later ones may be cut), KIP-98
(aborted transactions are told beside the records). Full fetch requests, no sessions: the versions used name
topics, so any broker since 0.11 will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from klog.client.cluster import NO_LEADER, Cluster, TopicPartition
from klog.client.errors import ClientError, RefusedError
from klog.client.offsets import Isolation, list_offsets
from klog.client.patience import Patience
from klog.formats.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import ChannelError, MalformedMessageError, UnexpectedResponseError
from klog.protocol.fetch_request import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from klog.protocol.fetch_response import PartitionFetched, decode_fetch_response
from klog.protocol.offset_times import EARLIEST, LATEST

# The last version that names topics; later ones say ids, which older brokers do not have.
_BY_NAME: Final = 12
_NO_EPOCH: Final = -1
_MANY_BYTES: Final = 50 << 20
_PARTITION_BYTES: Final = 1 << 20


class Fetched(NamedTuple):
    """What one partition gave: batches as on disk, the last of which may be cut off.

    `aborted` are (producer id, first offset) pairs, for committed readers. `end_offset` is how far this
    reader may read for now: the high watermark, or the last stable offset.
    """

    partition: TopicPartition
    position: int
    records: memoryview
    aborted: Sequence[tuple[int, int]]
    end_offset: int


class Jumped(NamedTuple):
    """A position that the broker does not have any more (or not yet), and where reading goes on."""

    partition: TopicPartition
    from_offset: int
    to_offset: int


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How much to ask for at a time, and how long all leaders together may wait for `min_bytes`."""

    isolation: Isolation = Isolation.READ_UNCOMMITTED
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = _MANY_BYTES
    max_partition_bytes: int = _PARTITION_BYTES


class Fetcher:
    """Reads partitions from given positions on. `positions` moves when the caller says so (`advance`)."""

    def __init__(
        self, cluster: Cluster, positions: Mapping[TopicPartition, int], settings: FetchSettings
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._positions = dict(positions)
        self._patience = Patience(cluster.timeout_ms)

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The offset that is read next, of each partition that is still read."""
        return self._positions

    def advance(self, partition: TopicPartition, position: int) -> None:
        """Everything below `position` has been taken. The partition is also asked last the next time."""
        self._positions.pop(partition)
        self._positions[partition] = position

    def drop(self, partition: TopicPartition) -> None:
        """Read this partition no further."""
        self._positions.pop(partition, None)

    def poll(self) -> Iterator[Fetched | Jumped]:
        """One request to every leader in turn, and what they gave; partitions without news come empty.

        Waits while leaders move. Raises ClientError, ChannelError when that takes too long.
        """
        leaders = self._cluster.by_leader(self._positions)
        max_wait_ms = max(self._settings.max_wait_ms // max(len(leaders), 1), 1)
        for node_id, partitions in leaders.items():
            try:
                answers = self._fetch(node_id, partitions, max_wait_ms)
            except (ClientError, ChannelError) as error:
                self._try_again(error)
                continue
            yield from self._taken(answers)

    def _try_again(self, error: KlogError) -> None:
        self._patience.failed(error)
        try:
            self._cluster.refresh({topic for topic, _ in self._positions})
        except ChannelError as lost:
            self._patience.failed(lost)

    def _fetch(
        self, node_id: int, partitions: Iterable[TopicPartition], max_wait_ms: int
    ) -> list[tuple[TopicPartition, PartitionFetched]]:
        if node_id == NO_LEADER:
            topic, number = next(iter(partitions))
            raise ClientError(
                f"{topic}-{number} has no leader", cure=f"klog topics describe {topic} shows why"
            )
        channel = self._cluster.channel(node_id)
        version = channel.version_of(ApiKey.FETCH, at_most=_BY_NAME)
        settings = self._settings
        request = FetchRequest(
            max_wait_ms,
            settings.min_bytes,
            settings.max_bytes,
            int(settings.isolation),
            self._topics(partitions),
        )
        body = channel.exchange(
            ApiKey.FETCH,
            version,
            (encode_fetch_request(version, request),),
            self._cluster.timeout_ms + max_wait_ms,
        )
        try:
            response = decode_fetch_response(version, body)
        except MalformedMessageError as error:
            channel.close()
            raise UnexpectedResponseError(f"the answer of {channel} cannot be read: {error}") from error
        if response.error_code != ErrorCode.NONE:
            raise RefusedError(f"reading from broker {node_id}", response.error_code)
        return [
            ((topic.name or "", partition.partition), partition)
            for topic in response.topics
            for partition in topic.partitions
        ]

    def _topics(self, partitions: Iterable[TopicPartition]) -> list[FetchTopic]:
        topics: dict[str, list[FetchPartition]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(
                FetchPartition(
                    number,
                    _NO_EPOCH,
                    self._positions[topic, number],
                    _NO_EPOCH,
                    -1,
                    self._settings.max_partition_bytes,
                )
            )
        return [FetchTopic(name, None, wanted) for name, wanted in topics.items()]

    def _taken(
        self, answers: Sequence[tuple[TopicPartition, PartitionFetched]]
    ) -> Iterator[Fetched | Jumped]:
        failure: RefusedError | None = None
        for partition, answer in answers:
            if partition not in self._positions:
                continue  # dropped by the caller while the answers before it were handed over
            code = error_code(answer.error_code)
            if code is ErrorCode.NONE:
                yield self._fetched(partition, answer)
            elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
                yield self._jump(partition)
            else:
                failure = RefusedError("reading {}-{}".format(*partition), code)
                if not code.retriable:
                    raise failure
        if failure is not None:
            self._try_again(failure)
        else:
            self._patience.succeeded()

    def _fetched(self, partition: TopicPartition, answer: PartitionFetched) -> Fetched:
        committed = self._settings.isolation is Isolation.READ_COMMITTED
        records = answer.records if isinstance(answer.records, memoryview) else memoryview(b"")
        return Fetched(
            partition,
            self._positions[partition],
            records,
            answer.aborted_transactions or (),
            answer.last_stable_offset if committed else answer.high_watermark,
        )

    def _jump(self, partition: TopicPartition) -> Jumped:
        """To the first offset there is, or to the end when the log is shorter than that."""
        position = self._positions[partition]
        earliest = list_offsets(self._cluster, {partition: EARLIEST})[partition]
        target = earliest
        if position > earliest:
            target = list_offsets(self._cluster, {partition: LATEST}, self._settings.isolation)[partition]
        self.advance(partition, target)
        return Jumped(partition, position, target)
