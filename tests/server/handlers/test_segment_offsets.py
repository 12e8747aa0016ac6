"""ListOffsets of version 0: offsets of segments by the time of their last write."""

from __future__ import annotations

import os

import pytest

from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.offset_times import EARLIEST, LATEST
from klog.server.handlers.data.list_offsets import ListOffsetsHandler
from tests.server.handlers.parts import OTHER_BROKER, TOPIC, Broker, answer_of, part_of, request_of

API = ApiKey.LIST_OFFSETS
CONSUMER, DEBUGGING_REPLICA = -1, -2
WRITTEN_MS = 1_600_000_000_000


def ask(broker: Broker, timestamp: int, count: int = 1, *, partition: int = 0, replica_id: int = CONSUMER):
    asked = part_of(
        API, 0, "ListOffsetsPartition", partition_index=partition, timestamp=timestamp, max_num_offsets=count
    )
    topic = part_of(API, 0, "ListOffsetsTopic", name=TOPIC, partitions=(asked,))
    request = request_of(API, 0, replica_id=replica_id, topics=(topic,))
    ListOffsetsHandler(broker.lookup, broker.clock).handle(request)
    ((found,),) = (topic.partitions for topic in answer_of(request).topics)
    return found.error_code, found.old_style_offsets


@pytest.fixture
def segments(broker: Broker) -> Broker:
    """Segments that begin at 0, 2 and 4, written to a second apart, and end at 6; the log starts at 1."""
    partition = broker.lead()
    for number in range(3):
        if number:
            partition.log.roll()
        broker.append(2)
        path = partition.log.segments.active.file.path
        os.utime(path, ns=(0, (WRITTEN_MS + 1000 * number) * 1_000_000))
    partition.log.advance_log_start(1)
    return broker


@pytest.mark.parametrize(
    ("timestamp", "count", "offsets"),
    [
        (LATEST, 1, (6,)),
        (LATEST, 2, (6, 4)),
        (LATEST, 9, (6, 4, 2, 1)),
        (LATEST, 0, ()),
        (EARLIEST, 1, (1,)),
        (EARLIEST, 9, (1,)),
        (WRITTEN_MS - 1, 9, ()),
        (WRITTEN_MS, 9, (1,)),
        (WRITTEN_MS + 1999, 1, (2,)),
        (WRITTEN_MS + 2000, 2, (4, 2)),
        (1 << 62, 1, (6,)),
    ],
)
def test_the_newest_segments_written_by_a_time(segments, timestamp, count, offsets) -> None:
    assert ask(segments, timestamp, count) == (ErrorCode.NONE, offsets)


def test_an_empty_log_has_one_offset(broker) -> None:
    broker.lead()
    assert ask(broker, LATEST, 9) == (ErrorCode.NONE, (0,))


def test_a_consumer_sees_the_high_watermark_in_the_place_of_what_is_beyond_it(broker) -> None:
    partition = broker.lead(isr=(1, OTHER_BROKER))
    broker.append(2)
    partition.log.roll()
    broker.append(2)
    assert partition.log.high_watermark == 0
    assert ask(broker, LATEST, 9) == (ErrorCode.NONE, (0, 0))
    assert ask(broker, LATEST, 9, replica_id=DEBUGGING_REPLICA) == (ErrorCode.NONE, (4, 2, 0))


def test_other_times_before_all_times_are_unknown(segments) -> None:
    assert ask(segments, -3) == (ErrorCode.UNSUPPORTED_VERSION, ())


def test_fewer_than_no_offsets_cannot_be_told(segments) -> None:
    assert ask(segments, LATEST, -1) == (ErrorCode.UNKNOWN_SERVER_ERROR, ())


@pytest.mark.parametrize("count", [1, -1])
def test_a_partition_that_is_not_there_is_told(segments, count) -> None:
    assert ask(segments, LATEST, count, partition=7) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ())
