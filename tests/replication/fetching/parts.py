"""Brokers with real logs, and a fetcher that copies from one to the other without a network."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.protocol.fetch_request import encode_fetch_request
from klog.protocol.fetch_response import FetchResponse, PartitionFetched, TopicFetched, decode_fetch_response
from klog.protocol.offset_times import LATEST
from klog.replication.fetching.fetcher import Fetcher
from klog.replication.fetching.following import start_of
from klog.replication.fetching.values import (
    AskEpochEnds,
    AskOffsets,
    EpochAnswered,
    Fetch,
    FetcherAnswer,
    FetcherRequest,
    FetchSettings,
    OffsetAnswered,
    Progress,
)
from klog.replication.partition import Partition, PartitionError
from klog.server.handlers.data.fetch import FetchHandler
from klog.server.handlers.data.fetch_sessions import FetchSessions
from klog.storage.log.partition_log import PartitionLog
from tests.server.handlers.parts import BROKER, OTHER_BROKER, TOPIC, TOPIC_UUID, Broker, FakeRequest

BOTH = (BROKER, OTHER_BROKER)
KEY = TopicPartition(TOPIC, 0)
BROKER_EPOCH = 77


def content(log: PartitionLog) -> bytes:
    """The bytes of all segments."""
    return b"".join(os.pread(each.file.descriptor, each.size, 0) for each in log.segments)


class Node(Broker):
    """A broker that answers what fetchers ask."""

    def __init__(self, root: Path, broker_id: int, configs: dict[str, dict[str, str]] | None = None) -> None:
        root.mkdir()
        super().__init__(root, configs or {}, broker_id)
        self._session_ids = iter(range(1, 1_000_000))
        self.handler = self._new_handler()

    def tell(self, *arguments: object, brokers: tuple[int, ...] = (1, 2, 3), **options: object) -> None:
        """Three brokers are alive."""
        super().tell(*arguments, brokers=brokers, **options)

    def lead(self, *arguments: object, leader: int = BROKER, **options: object) -> Partition:
        """UpdateMetadata comes before LeaderAndIsr, because a follower looks there for its leader."""
        self.tell(leader=leader)
        return super().lead(*arguments, leader=leader, **options)

    def _new_handler(self) -> FetchHandler:
        sessions = FetchSessions(10, self.clock, lambda: next(self._session_ids))
        return FetchHandler(
            self.lookup, sessions, self.fetch_purgatory, self.clock, 50 << 20, self.topic_stats
        )

    def forget_sessions(self) -> None:
        self.handler = self._new_handler()

    def partition(self, key: TopicPartition = KEY) -> Partition:
        return self.replicas.partitions[key]

    def log(self, key: TopicPartition = KEY) -> PartitionLog:
        return self.partition(key).log

    def answer(self, request: FetcherRequest) -> FetcherAnswer:
        if isinstance(request, Fetch):
            return self._fetch(request)
        if isinstance(request, AskEpochEnds):
            return {key: self._epoch_end(key, *asked) for key, asked in request.partitions.items()}
        return {key: self._offset(key, request, epoch) for key, epoch in request.partitions.items()}

    def _fetch(self, request: Fetch) -> FetchResponse:
        at_once = request.request._replace(max_wait_ms=0)
        sent = FakeRequest(1, request.version, memoryview(encode_fetch_request(request.version, at_once)))
        self.handler.handle(sent)
        return decode_fetch_response(request.version, sent.answer)

    def _epoch_end(self, key: TopicPartition, current: int, asked: int) -> EpochAnswered:
        try:
            log = self.partition(key).require_leader(current)
        except PartitionError as refused:
            return EpochAnswered(refused.error)
        return EpochAnswered(ErrorCode.NONE, *log.end_of_epoch(asked))

    def _offset(self, key: TopicPartition, request: AskOffsets, current: int) -> OffsetAnswered:
        try:
            log = self.partition(key).require_leader(current)
        except PartitionError as refused:
            return OffsetAnswered(refused.error)
        is_end = request.timestamp == LATEST
        return OffsetAnswered(ErrorCode.NONE, log.log_end_offset if is_end else log.log_start_offset)


class Throttle:
    """A quota of which a test says whether it is exceeded."""

    def __init__(self, *keys: TopicPartition) -> None:
        self.keys = keys
        self.is_exceeded = False
        self.recorded: list[int] = []

    def is_throttled(self, key: TopicPartition) -> bool:
        return key in self.keys

    def record(self, size_bytes: int, now_ms: int) -> None:
        self.recorded.append(size_bytes)

    def exceeded(self, now_ms: int) -> bool:
        return self.is_exceeded


class Copying:
    """Broker 2 follows broker 1. `now_ms` is the fetcher's time."""

    def __init__(
        self,
        root: Path,
        settings: FetchSettings | None = None,
        *,
        quota: Throttle | None = None,
        configs: dict[str, dict[str, str]] | None = None,
    ) -> None:
        self.leader = Node(root / "leader", BROKER, configs)
        self.follower = Node(root / "follower", OTHER_BROKER, configs)
        self.now_ms = 1000
        self.epoch = 0
        self.truncated: list[PartitionLog] = []
        self.fetcher = Fetcher(
            BROKER,
            settings or FetchSettings(OTHER_BROKER),
            self.follower.replicas,
            broker_epoch=lambda: BROKER_EPOCH,
            wall_clock_ms=self.follower.clock,
            quota=quota,
            truncated=self.truncated.append,
        )

    def elect(self, epoch: int, *, partition: int = 0, follows: bool = True, **options: object) -> None:
        """Broker 1 leads in an epoch; with `follows` broker 2 has heard of it, too."""
        self.epoch = epoch
        self.leader.lead(partition=partition, epoch=epoch, replicas=BOTH, **options)
        if follows:
            self.follow(epoch, partition=partition, **options)

    def follow(self, epoch: int, *, partition: int = 0, **options: object) -> None:
        """Broker 2 follows broker 1, and fetches."""
        self.follower.lead(partition=partition, leader=BROKER, epoch=epoch, replicas=BOTH, **options)
        key = TopicPartition(TOPIC, partition)
        start = start_of(self.follower.partition(key))
        assert start is not None
        self.fetcher.add({key: start})

    def next_request(self) -> FetcherRequest | None:
        return self.fetcher.next_request(self.now_ms)

    def next_fetch(self) -> Fetch:
        request = self.next_request()
        assert isinstance(request, Fetch), request
        return request

    def asked(self) -> dict[TopicPartition, object]:
        """The partitions that the next fetch names."""
        fetch = self.next_fetch().request
        return {
            TopicPartition(topic.name or "", each.partition): each
            for topic in fetch.topics
            for each in topic.partitions
        }

    def step(self) -> Progress:
        """One request and its answer."""
        request = self.next_request()
        assert request is not None
        return self.fetcher.answered(request, self.leader.answer(request), self.now_ms)

    def steps(self, most: int = 20) -> None:
        """Go on until there is no news, or nothing to send."""
        for _ in range(most):
            before, request = self._seen(), self.next_request()
            if request is None:
                return
            self.fetcher.answered(request, self.leader.answer(request), self.now_ms)
            if self._seen() == before:
                return
        raise AssertionError("the fetcher does not come to rest")

    def _seen(self) -> object:
        return {
            key: (state.offset, state.last_epoch, state.mode, state.lag)
            for key, state in self.fetcher.states.items()
        }

    def answers(
        self, request: Fetch, *partitions: PartitionFetched, session_id: int = 1, **fields: int
    ) -> Progress:
        """The leader answers this, whatever it has."""
        topics = [TopicFetched(None, TOPIC_UUID, list(partitions))] if partitions else []
        response = FetchResponse(topics, session_id=session_id, **fields)
        return self.fetcher.answered(request, response, self.now_ms)

    def waits(self) -> bool:
        """Whether nothing is fetched or asked now. The leader is first told which partitions to forget."""
        request = self.next_request()
        if isinstance(request, Fetch) and request.request.forgotten and not request.request.topics:
            self.answers(request)
            request = self.next_request()
        return request is None

    def pass_time(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    def state(self, partition: int = 0) -> object:
        return self.fetcher.states.get(TopicPartition(TOPIC, partition))


def offsets(entries: Mapping[TopicPartition, object]) -> dict[int, int]:
    """The offset asked of each partition."""
    return {key.partition: entry.fetch_offset for key, entry in entries.items()}
