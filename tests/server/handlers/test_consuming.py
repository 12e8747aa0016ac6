"""Consumers as a whole: whatever sizes they ask for, they read every byte once and in order, and nobody who
waits for records is forgotten.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.formats.constants import ENTRY_PREFIX_BYTES
from klog.protocol.fetch_response import PartitionFetched
from tests.server.handlers.parts import TOPIC, Broker, batch
from tests.server.handlers.test_fetch import fetch, fetch_request, fetched, handler_of, wants
from tests.threads import join, started


def whole_batches(found: PartitionFetched) -> list[bytes]:
    """The batches of an answer as a client takes them: a cut last one is left for the next fetch."""
    data, batches = bytes(found.records), []
    while len(data) > ENTRY_PREFIX_BYTES:
        size = ENTRY_PREFIX_BYTES + int.from_bytes(data[8:12], "big")
        if size > len(data):
            break
        batches.append(data[:size])
        data = data[size:]
    return batches


def next_offset(data: bytes) -> int:
    return int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big") + 1


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=25),
    segment_bytes=st.integers(3200, 10_000),
    limits=st.lists(st.tuples(st.integers(1, 9000), st.integers(1, 9000)), min_size=1, max_size=4),
    version=st.integers(4, 17),
)
def test_a_consumer_reads_every_byte_of_the_log_in_order(
    tmp_path_factory, sizes, segment_bytes, limits, version
) -> None:
    config = {"segment.bytes": str(segment_bytes), "index.interval.bytes": "1000"}
    broker = Broker(tmp_path_factory.mktemp("log"), {TOPIC: config})
    broker.lead()
    handler = handler_of(broker)
    written = [broker.append(value=b"x" * size)[0] for size in sizes]
    read: list[bytes] = []
    offset = 0
    while offset < len(sizes):
        max_bytes, partition_max_bytes = limits[len(read) % len(limits)]
        request = fetch(
            handler, wants(offset=offset, max_bytes=partition_max_bytes), max_bytes=max_bytes, version=version
        )
        batches = whole_batches(fetched(request))
        assert batches, "a consumer always gets on"
        assert len(fetched(request).records) <= max(len(batches[0]), min(max_bytes, partition_max_bytes))
        read += batches
        offset = next_offset(batches[-1])
    assert read == written


@pytest.fixture
def quick_turns() -> Iterator[None]:
    """Threads take turns much more often than they would: what can happen between two steps happens."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class WaitingConsumer:
    """Fetches a batch after the other; the clock stands still, so no timeout helps who was forgotten."""

    def __init__(self, broker: Broker) -> None:
        self.handler = handler_of(broker)
        self.offset = 0

    def fetch(self, batches: int) -> bool:
        """Wait for so many batches; whether they came."""
        size = batches * len(batch())
        request = fetch_request(wants(offset=self.offset, max_bytes=size), max_wait_ms=500, min_bytes=size)
        answered, respond = threading.Event(), request.respond

        def answer(parts) -> None:
            respond(parts)
            answered.set()

        request.respond = answer  # type: ignore[method-assign]
        self.handler.handle(request)
        if not answered.wait(60):
            return False
        self.offset += batches
        return len(fetched(request).records) == size


def produce(broker: Broker) -> None:
    _, moved = broker.replicas.partitions[TOPIC, 0].append(memoryview(batch()), -1, broker.clock())
    broker.replicas.appended((TOPIC, 0), high_watermark_moved=moved)


@pytest.mark.usefixtures("quick_turns")
def test_an_append_at_the_moment_when_a_fetch_begins_to_wait_is_not_missed(tmp_path) -> None:
    """One append for each fetch, started together: an append that is missed is missed for good."""
    broker = Broker(tmp_path)
    broker.lead()
    consumer, go, rounds = WaitingConsumer(broker), threading.Semaphore(0), 1500

    def follow() -> None:
        for number in range(rounds):
            go.acquire()
            for _ in range(number % 40 * 5):
                pass  # begins a little earlier or later each time
            produce(broker)

    producer = started(follow)
    served = 0
    for _ in range(rounds):
        go.release()
        if not consumer.fetch(1):
            break
        served += 1
    for _ in range(rounds - served - 1):
        go.release()
    join([producer])
    assert served == rounds
    assert (broker.fetch_purgatory.waiting, len(broker.timer)) == (0, 0)


@pytest.mark.usefixtures("quick_turns")
@pytest.mark.parametrize("wanted", [1, 3])
def test_nobody_who_waits_is_forgotten_while_others_write(tmp_path, wanted: int) -> None:
    broker = Broker(tmp_path)
    broker.lead()
    batches_each, producers = 200, 3
    served: list[bool] = []

    def consume() -> None:
        consumer = WaitingConsumer(broker)
        served.append(all(consumer.fetch(wanted) for _ in range(batches_each * producers // wanted)))

    def write() -> None:
        for _ in range(batches_each):
            produce(broker)

    join([started(target) for target in (consume, consume, *[write] * producers)])
    assert served == [True, True]
    assert (broker.fetch_purgatory.waiting, len(broker.timer)) == (0, 0)
