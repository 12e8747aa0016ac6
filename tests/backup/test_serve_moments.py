"""`klog serve --read-only REPOSITORY` answers clients as a broker on a restore to the same moment does."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from confluent_kafka.admin import OffsetSpec

from klog.backup.restoring.request import RestoreRequest
from klog.server.startup.broker import Broker
from tests.backup.recorded import SEED, Recorded, without_input
from tests.backup.served import (
    batches,
    consumed,
    group_offsets,
    offsets_at,
    served_repository,
    served_restore,
)
from tests.backup.transactional_load import PARTITIONS, TOPIC

MOMENTS = max(1, int(os.environ.get("KLOG_TEST_MOMENTS", "12")) // 4)


@pytest.mark.parametrize("number", range(MOMENTS))
def test_a_moment_is_served_as_a_restore_gives_it(recorded: Recorded, tmp_path: Path, number: int) -> None:
    chance = random.Random(SEED + 100 + number)
    at_ms = chance.randint(recorded.begin_ms + 300, recorded.end_ms) if number else recorded.end_ms
    request = RestoreRequest(at_ms, wants=without_input)
    with (
        served_restore(recorded.repository, request, tmp_path / "restored") as expected,
        served_repository(recorded.repository.place, request) as found,
    ):
        count = require_equal(found, expected, chance)

    assert count > 0 or number


def require_equal(found: Broker, expected: Broker, chance: random.Random) -> int:
    """Compare all that clients can see; returns how many records there are."""
    assert {str(log.partition) for log in found.logs.logs()} == {
        str(log.partition) for log in expected.logs.logs()
    }
    for log in expected.logs.logs():
        same = found.logs.get(log.partition)
        assert same is not None
        assert (same.topic_id, same.log_start_offset, same.log_end_offset, same.high_watermark) == (
            log.topic_id,
            log.log_start_offset,
            log.log_end_offset,
            log.high_watermark,
        )
        assert same.last_stable_offset == log.last_stable_offset
        assert same.epochs.entries == log.epochs.entries
        assert batches(found, *log.partition) == batches(expected, *log.partition), log
    assert group_offsets(found) == group_offsets(expected)
    beginnings = dict.fromkeys(range(PARTITIONS), 0)
    everything = consumed(expected, TOPIC, beginnings, "read_uncommitted")
    ends = {partition: records[-1] for partition, records in everything.items() if records}
    if not ends:
        return 0
    for starts in (beginnings, {each: chance.randint(0, last[0]) for each, last in ends.items()}):
        for isolation in ("read_committed", "read_uncommitted"):
            assert consumed(found, TOPIC, starts, isolation) == consumed(expected, TOPIC, starts, isolation)
    for spec_of in (
        lambda _: OffsetSpec.earliest(),
        lambda _: OffsetSpec.latest(),
        lambda _: OffsetSpec.max_timestamp(),
        lambda last: OffsetSpec.for_timestamp(last[3][1] - chance.randint(0, 500)),
        lambda last: OffsetSpec.for_timestamp(last[3][1] + 1000),
    ):
        asked = {(TOPIC, partition): spec_of(last) for partition, last in ends.items()}
        assert offsets_at(found, asked) == offsets_at(expected, asked)
    return sum(map(len, everything.values()))
