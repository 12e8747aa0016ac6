"""Offsets by time: what a real broker answered to the same questions on the same logs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats import message_set
from klog.formats.names import parse_directory
from klog.storage.log import time_lookup
from klog.storage.log.loading import load_log
from klog.storage.log.partition_log import PartitionLog
from tests import corpora
from tests.storage.log.building import (
    NOW_MS,
    Clock,
    Later,
    append,
    batch,
    config,
    fill,
    latest,
    new_log,
    settings,
)

CORPUS = corpora.Corpus("k39-times")
PARTITIONS = sorted(path.name for path in CORPUS.log_dir().path.iterdir() if path.is_dir())


def open_copy(name: str, root: Path) -> PartitionLog:
    directory = shutil.copytree(CORPUS.log_dir().path / name, root / name)
    loaded = load_log(str(directory), config(), settings(root, clean=True))
    partition = parse_directory(name).partition
    return PartitionLog(
        partition, str(directory), config(), loaded.state, clock_ms=Clock(), background=Later()
    )


def answered(found: time_lookup.TimedOffset | None) -> dict[str, Any]:
    if found is None:
        return {"offset": None, "timestamp": None, "leaderEpoch": None}
    return {"offset": found.offset, "timestamp": found.timestamp, "leaderEpoch": found.leader_epoch}


@pytest.mark.parametrize("name", PARTITIONS)
def test_every_question_is_answered_as_kafka_answered_it(name: str, tmp_path: Path) -> None:
    log = open_copy(name, tmp_path)
    specs = {
        "EarliestSpec": time_lookup.earliest,
        "LatestSpec": latest,
        "MaxTimestampSpec": time_lookup.with_max_timestamp,
    }
    asked = corpora.read_jsonl(CORPUS.path / "expected" / f"{name}.times.jsonl")
    assert len(asked) > 3
    for question in asked:
        if "query" in question:
            mine = answered(time_lookup.first_at_or_after(log, question["query"]))
            assert {"query": question["query"], **mine} == question
        else:
            found = specs[question["spec"]](log)
            assert (found.offset if found else -1) == question["offset"]
            assert (found.timestamp if found else -1) == question["timestamp"]


def test_records_below_the_log_start_are_not_found(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 1, records=4)
    log.advance_log_start(2)
    found = time_lookup.first_at_or_after(log, 0)
    assert (found.offset, time_lookup.earliest(log).offset) == (2, 2)


def test_where_no_record_has_a_time_the_first_has_the_largest_unless_it_can_have_none(tmp_path: Path) -> None:
    log = new_log(tmp_path / "2")
    assert time_lookup.with_max_timestamp(log) is None
    fill(log, 2, records=2, timestamp=-1)
    assert time_lookup.with_max_timestamp(log) == (-1, 0, 0)
    old = new_log(tmp_path / "0")
    values = {"magic": 0, "timestamp": None, "key": None, "value": b"v"}
    attributes = message_set.c.Container(unused=0, timestampType="CreateTime", codec="none")
    message = message_set.build(message_set.sealed(0, {**values, "attributes": attributes}))
    old.append_as_follower(memoryview(message), 0, NOW_MS)
    assert time_lookup.with_max_timestamp(old) is None


def test_only_the_first_segment_that_reaches_the_time_is_searched(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 1, timestamp=NOW_MS)
    log.roll()
    fill(log, 1, timestamp=NOW_MS + 5)
    assert time_lookup.first_at_or_after(log, NOW_MS + 1).offset == 1
    log.advance_log_start(1)
    assert time_lookup.first_at_or_after(log, NOW_MS) is None, "as Kafka has it, until the segment is deleted"


@given(times=st.lists(st.integers(0, 30), min_size=1, max_size=40), target=st.integers(0, 31))
def test_the_first_record_in_time_order_is_the_first_that_is_late_enough(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], target: int
) -> None:
    log = new_log(tmp_path_factory.mktemp("log"), {"segment.bytes": "400", "index.interval.bytes": "0"})
    for timestamp in times:
        append(log, batch(timestamp=timestamp))
    found = time_lookup.first_at_or_after(log, target)
    late = [offset for offset, timestamp in enumerate(times) if timestamp >= target]
    assert (found.offset if found else None) == (late[0] if late else None)
    largest = time_lookup.with_max_timestamp(log)
    assert (largest.timestamp, largest.offset) == (max(times), times.index(max(times)))
