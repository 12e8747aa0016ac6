"""Consumers as a whole: whatever sizes they ask for, they read every byte once and in order, and nobody who
waits for records is forgotten.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.formats.constants import ENTRY_PREFIX_BYTES
from klog.protocol.error_codes import ErrorCode
from klog.protocol.fetch_response import PartitionFetched
from tests.server.handlers.parts import TOPIC, Broker, batch
from tests.server.handlers.test_fetch import fetch, fetch_request, fetched, handler_of, wants


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


@pytest.mark.parametrize("wanted", [1, 3])
def test_nobody_who_waits_is_forgotten_while_others_write(tmp_path, wanted: int) -> None:
    """Producers and waiting consumers in threads of their own. The clock stands still: no timeout helps."""
    broker = Broker(tmp_path)
    broker.lead()
    handler = handler_of(broker)
    partition = broker.replicas.partitions[TOPIC, 0]
    size, total, batches_each = len(batch()), 600, 200
    answered = threading.Condition()
    problems: list[str] = []

    def produce() -> None:
        for _ in range(batches_each):
            _, moved = partition.append(memoryview(batch()), -1, broker.clock())
            broker.replicas.appended((TOPIC, 0), high_watermark_moved=moved)

    def consume() -> None:
        offset = 0
        while offset + wanted <= total:
            request = fetch_request(
                wants(offset=offset, max_bytes=wanted * size), max_wait_ms=500, min_bytes=wanted * size
            )
            respond = request.respond

            def answer(parts, respond=respond) -> None:
                with answered:
                    respond(parts)
                    answered.notify_all()

            request.respond = answer  # type: ignore[method-assign]
            handler.handle(request)
            with answered:
                if not answered.wait_for(lambda asked=request: asked.answered, timeout=10):
                    problems.append(f"waits at offset {offset} of {partition.log.log_end_offset}")
                    return
            found = fetched(request)
            if found.error_code != ErrorCode.NONE or len(found.records) < wanted * size:
                problems.append(f"{found}")
                return
            offset += wanted

    with ExitStack() as stack:
        for target in (consume, consume, produce, produce, produce):
            thread = threading.Thread(target=target)
            thread.start()
            stack.callback(thread.join)
    assert not problems
    assert (broker.fetch_purgatory.waiting, len(broker.timer)) == (0, 0)
