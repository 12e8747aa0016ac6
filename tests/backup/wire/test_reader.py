"""How much a reader of a partition asks for at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from klog.backup.wire import reader
from klog.backup.wire.clients import Client
from klog.client.cluster import Cluster, PartitionLeader
from klog.client.retry import Retry, RetryPolicy
from klog.formats.names import TopicPartition
from klog.protocol.fetch_request import FetchRequest
from klog.protocol.fetch_response import FetchResponse, PartitionFetched, TopicFetched
from tests.export.logs import batch

ORDERS = TopicPartition("orders", 0)


class Leader:
    """A cluster of one broker. Its log is cut where a request's limit is, as brokers cut it."""

    timeout_ms = 1_000

    def __init__(self, log: bytes) -> None:
        self.log = log
        self.asked: list[int] = []

    def partitions(self, topic: str) -> dict[int, PartitionLeader]:
        assert topic == ORDERS.topic
        return {0: PartitionLeader(1, 0)}

    def leader_connection(self, leader_id: int, partitions: list[TopicPartition]) -> Leader:
        assert (leader_id, partitions) == (1, [ORDERS])
        return self

    def answer(self, request: FetchRequest) -> FetchResponse:
        limit = request.topics[0].partitions[0].max_bytes
        self.asked.append(limit)
        found = PartitionFetched(0, 0, 100, records=memoryview(self.log)[:limit])
        return FetchResponse([TopicFetched("orders", None, [found])])


def asked_for(log: bytes, first_bytes: int, monkeypatch: pytest.MonkeyPatch, fetches: int = 1) -> list[int]:
    """The limits of the requests."""
    leader = Leader(log)
    monkeypatch.setattr(reader, "FETCH_BYTES", first_bytes)
    monkeypatch.setattr(reader, "fetch", lambda _connection, request, _timeout_ms: leader.answer(request))
    with ThreadPoolExecutor(1) as ahead:
        retry = Retry(RetryPolicy(0), lambda: 0.0, lambda _s: None)
        read = reader.PartitionReader(Client(cast(Cluster, leader), retry, ahead), ORDERS, None)
        read.begin()
        for _ in range(fetches):
            assert len(read.fetch(0).table)
    return leader.asked


def test_a_batch_that_was_cut_off_is_asked_for_with_more(monkeypatch: pytest.MonkeyPatch) -> None:
    log = batch(0, 100)
    assert asked_for(log, len(log) // 3, monkeypatch) == [len(log) // 3, len(log) // 3 * 2, len(log) // 3 * 4]


def test_if_much_of_an_answer_is_a_batch_that_comes_again_the_next_request_is_larger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = b"".join(batch(first, 10) for first in range(0, 200, 10))
    size = len(log) // 20
    most = 3 * size // 2
    assert asked_for(log, most, monkeypatch, fetches=2) == [most, 2 * most]
    assert asked_for(log, 9 * size, monkeypatch, fetches=2) == [9 * size, 9 * size]
