"""Fetch 0 to 3 on a broker with a real log: what is converted, where, and how much of it at once."""

from __future__ import annotations

import os
import random
from functools import partial
from typing import Any

import pytest

from klog.kernel import kernel
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.kernel.columns import BatchTable
from klog.protocol.error_codes import ErrorCode
from klog.protocol.file_slice import LazyBytes
from klog.server.counters.request_times import ConversionCounter
from klog.server.handlers.data.fetch import FetchHandler
from klog.server.handlers.data.fetch_sessions import FetchSessions
from tests.server.handlers.parts import TOPIC, Broker, FakeRequest
from tests.server.handlers.test_fetch import fetch_request, fetched, wants

MAX_BYTES = 50_000_000
CHUNK_BYTES = 128 * 1024
VERSIONS = range(4)


class Background:
    """The thread that may wait: it does its work when the test says so."""

    def __init__(self) -> None:
        self.work: list[Any] = []

    def __call__(self, request: FakeRequest, work: Any) -> None:
        self.work.append(partial(work, request))

    def run(self) -> None:
        while self.work:
            self.work.pop()()


@pytest.fixture
def background() -> Background:
    return Background()


@pytest.fixture
def counter() -> ConversionCounter:
    return ConversionCounter()


def handler_of(broker: Broker, background: Background, counter: ConversionCounter) -> FetchHandler:
    return FetchHandler(
        broker.lookup,
        FetchSessions(10, broker.clock, lambda: random.randint(1, 2**31 - 1)),
        broker.fetch_purgatory,
        broker.clock,
        MAX_BYTES,
        broker.topic_stats,
        background,
        conversions=counter,
    )


@pytest.fixture
def handler(broker: Broker, background: Background, counter: ConversionCounter) -> FetchHandler:
    return handler_of(broker, background, counter)


def write(broker: Broker, *sizes: int, **fields: Any) -> None:
    """A batch for each size, of records of a KB."""
    for size in sizes:
        records = [RecordData(at, 1000 + at, b"k", bytes(1000)) for at in range(size)]
        data = memoryview(build_batch(records, BatchFields(**fields)))
        _, moved = broker.replicas.partitions[TOPIC, 0].append(data, 1, broker.clock())
        broker.replicas.appended((TOPIC, 0), high_watermark_moved=moved)


def fetch(handler: FetchHandler, version: int, **wanted: Any) -> FakeRequest:
    request = fetch_request(wants(**wanted), version=version)
    handler.handle(request)
    return request


def offsets(request: FakeRequest) -> list[int]:
    """Those of the whole messages."""
    table = BatchTable()
    kernel.scan(fetched(request).records, 0, False, table)
    assert set(table.magic) == {0 if request.api_version < 2 else 1}
    return list(table.last_offset)


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_messages_from_the_offset_on(broker: Broker, handler: FetchHandler, version: int) -> None:
    broker.lead()
    write(broker, 3, 2)
    assert offsets(fetch(handler, version, offset=1)) == [1, 2, 3, 4]


def test_only_the_first_batch_is_converted_before_the_answer(
    broker: Broker, handler: FetchHandler, counter: ConversionCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.lead()
    write(broker, *[10] * 60)
    read: list[int] = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda *asked: read.append(asked[1]) or pread(*asked))
    request = fetch(handler, 3, max_bytes=MAX_BYTES)
    (lazy,) = (part for part in request.parts or () if isinstance(part, LazyBytes))
    assert max(read) <= CHUNK_BYTES
    assert counter.conversions == 0
    before = len(read)
    pieces = []
    while len(lazy):
        pieces.append(lazy.take())
    assert max(map(len, pieces)) <= 2 * CHUNK_BYTES
    assert len(read) - before >= 600_000 // CHUNK_BYTES
    assert counter.conversions == 1
    assert broker.topic_stats.topics[TOPIC].fetch_conversions == 600


def test_a_consumer_that_goes_away_is_counted_for_what_was_converted(
    broker: Broker, handler: FetchHandler, counter: ConversionCounter
) -> None:
    broker.lead()
    write(broker, *[10] * 60)
    request = fetch(handler, 3, max_bytes=MAX_BYTES)
    next(part for part in request.parts or () if isinstance(part, LazyBytes)).take()
    request.parts = None
    assert counter.conversions == 1
    assert 0 < broker.topic_stats.topics[TOPIC].fetch_conversions < 600


def test_a_fetch_that_waited_is_converted_by_a_thread_that_may_wait(
    broker: Broker, handler: FetchHandler, background: Background
) -> None:
    broker.lead()
    request = fetch_request(wants(), version=2, max_wait_ms=500)
    handler.handle(request)
    write(broker, 2)
    assert not request.answered
    background.run()
    assert offsets(request) == [0, 1]


@pytest.mark.parametrize("version", VERSIONS)
def test_conversion_can_be_turned_off_but_not_for_followers(
    tmp_path: Any, background: Background, counter: ConversionCounter, version: int
) -> None:
    broker = Broker(tmp_path, {TOPIC: {"message.downconversion.enable": "false"}})
    broker.lead(replicas=(1, 2))
    write(broker, 1)
    handler = handler_of(broker, background, counter)
    found = fetched(fetch(handler, version))
    assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (found.high_watermark, found.records) == (-1, None)
    request = fetch_request(wants(), version=version, replica_id=2)
    handler.handle(request)
    assert offsets(request) == [0]


def test_records_in_zstd_end_the_answer_and_are_an_error_as_its_first(
    broker: Broker, handler: FetchHandler
) -> None:
    broker.lead()
    write(broker, 200)
    write(broker, 2)
    write(broker, 2, codec=4)
    # The chunk of both ends at the first, as in Kafka.
    assert offsets(fetch(handler, 3)) == list(range(200))
    found = fetched(fetch(handler, 3, offset=202))
    assert found.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_that_is_too_large_is_sent_since_version_3(
    broker: Broker, handler: FetchHandler, version: int
) -> None:
    broker.lead()
    write(broker, 3)
    found = fetch(handler, version, max_bytes=100)
    assert len(fetched(found).records) == 0 if version < 3 else offsets(found) == [0, 1, 2]


def test_what_is_sent_counts_not_what_was_read(broker: Broker, handler: FetchHandler) -> None:
    broker.lead()
    write(broker, 50, codec=1)
    request = fetch(handler, 3)
    assert broker.topic_stats.topics[TOPIC].bytes_out == len(fetched(request).records)
