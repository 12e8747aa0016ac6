"""Whole answers of a leader are written as if each batch had been looked at by itself.

The files, the epochs, the producers and the state of the log are the same, whatever the batches are.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.config.topic import default_topic_config
from klog.formats.names import TopicPartition
from klog.formats.packed import INT32, INT64
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.kernel.markers import Marker, build_marker
from klog.storage.log import partition_log
from klog.storage.log.append_values import AppendError
from klog.storage.log.follower_batches import FollowedRun, followed_batch, followed_run
from klog.storage.log.loading import LoadSettings, create_log
from klog.storage.log.partition_log import PartitionLog
from tests.server.handlers.parts import NoBackground

CONFIGS = {"index.interval.bytes": "200", "segment.bytes": "3000"}
NOW_MS = 1_700_000_000_000


class Sent(NamedTuple):
    """One batch, and how far its first offset is from the end of the batch before."""

    gap: int
    records: int
    epoch_step: int
    producer: int
    producer_epoch: int
    kind: str
    timestamp: int


BATCHES = st.lists(
    st.builds(
        Sent,
        gap=st.sampled_from([0, 0, 0, 3]),
        records=st.integers(1, 3),
        epoch_step=st.sampled_from([0, 0, 0, 1]),
        producer=st.integers(-1, 2),
        producer_epoch=st.integers(0, 1),
        kind=st.sampled_from(["plain", "plain", "transactional", "commit", "abort"]),
        timestamp=st.integers(-1, 20),
    ),
    min_size=1,
    max_size=40,
)


def built(sent: Sent, offset: int, epoch: int) -> bytes:
    if sent.kind in ("commit", "abort") and sent.producer >= 0:
        marker = Marker(sent.kind == "abort", 0, NOW_MS + sent.timestamp)
        data = build_marker(sent.producer, sent.producer_epoch, marker)
    else:
        time_ms = NOW_MS + sent.timestamp if sent.timestamp >= 0 else -1
        fields = {}
        if sent.producer >= 0:
            fields = {
                "producer_id": sent.producer,
                "producer_epoch": sent.producer_epoch,
                "base_sequence": offset,
                "is_transactional": sent.kind == "transactional",
            }
        records = [RecordData(number, time_ms, b"k", b"v" * 30) for number in range(sent.records)]
        data = build_batch(records, BatchFields(**fields))
    INT64.pack_into(data, 0, offset)
    INT32.pack_into(data, 12, epoch)
    return bytes(data)


def answers(batches: list[Sent], sizes: list[int]) -> list[bytes]:
    """The batches as answers of so many batches each."""
    offset = epoch = 0
    found, parts = [], list(batches)
    for size in (*sizes, len(batches)):
        data = b""
        for sent in parts[:size]:
            epoch += sent.epoch_step
            one = built(sent, offset + sent.gap, epoch)
            offset += sent.gap + int.from_bytes(one[23:27], "big") + 1
            data += one
        del parts[:size]
        if data:
            found.append(data)
    return found


def new_log(root: Path, **configs: str) -> PartitionLog:
    root.mkdir()
    config = default_topic_config(CONFIGS | {name.replace("_", "."): text for name, text in configs.items()})
    state = create_log(str(root), config, LoadSettings(NOW_MS, str(root)))
    return PartitionLog(
        TopicPartition("t", 0), str(root), config, state, clock_ms=lambda: NOW_MS, background=NoBackground()
    )


def seen(log: PartitionLog, root: Path) -> dict[str, object]:
    """All that an append changes."""
    found: dict[str, object] = {
        "end": (log.log_end_offset, log.recovery_point, log._unflushed_records),
        "epochs": log.epochs.entries,
        "producers": {
            producer_id: (one.entry(), list(one.batches)) for producer_id, one in log.producers.by_id.items()
        },
        "order": list(log.producers.by_id),
        "unstable": (log.producers.first_unstable_offset, log.producers.end_offset),
        "segments": [
            (
                each.base_offset,
                each.size,
                each.bytes_since_index_entry,
                each.max_timestamp,
                each._first_timestamp,
                each.offset_index.last,
                each.time_index.last,
            )
            for each in log.segments
        ],
    }
    log.close()
    found |= {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()}
    return found


@given(batches=BATCHES, sizes=st.lists(st.sampled_from([1, 1, 1, 2, 20]), max_size=20))
@settings(max_examples=150, deadline=None)
def test_a_run_is_written_as_its_batches_would_be(batches: list[Sent], sizes: list[int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        found = []
        for left_out in ((), ("followed_batch",), ("followed_batch", "followed_run")):
            root = Path(directory) / f"without {len(left_out)}"
            log = new_log(root)
            with pytest.MonkeyPatch.context() as patch:
                for name in left_out:
                    patch.setattr(partition_log, name, lambda *_: None)
                for data in answers(batches, sizes):
                    log.append_as_follower(memoryview(bytearray(data)), 100, NOW_MS)
            found.append(seen(log, root))
        assert found[0] == found[1] == found[2]


def plain(count: int, first: int = 0, epoch: int = 0) -> bytes:
    sent = Sent(0, 1, 0, -1, 0, "plain", 0)
    return b"".join(built(sent, first + number, epoch) for number in range(count))


def run_of(data: bytes, leader_epoch: int = 0, end: int = 0) -> FollowedRun | None:
    return followed_run(memoryview(data), leader_epoch, end)


def test_usual_batches_are_one_run() -> None:
    data = plain(5, 7)
    run = run_of(data + data[:30], end=7)
    assert run is not None
    assert (run.first_offset, run.last_offset, run.data) == (7, 11, memoryview(data))


@pytest.mark.parametrize(
    ("data", "leader_epoch", "end"),
    [
        pytest.param(plain(2)[:-1] + b"x" + plain(1, 2), 0, 0, id="damaged"),
        pytest.param(plain(2) + plain(1), 0, 0, id="an offset goes back"),
        pytest.param(plain(2), 0, 1, id="begins below the log's end"),
        pytest.param(plain(2) + plain(1, 2, epoch=1), 0, 0, id="a later epoch"),
        pytest.param(plain(1)[:-1], 0, 0, id="no whole batch"),
    ],
)
def test_what_is_unusual_is_looked_at_batch_by_batch(data: bytes, leader_epoch: int, end: int) -> None:
    assert run_of(data, leader_epoch, end) is None


def test_a_usual_batch_is_known_without_a_table() -> None:
    for first, end in ((7, 7), (7, 5)):
        batch = followed_batch(memoryview(plain(1, first, epoch=2)), 2, end)
        assert batch is not None
        assert (batch.first_offset, batch.last_offset, batch.leader_epoch) == (first, first, 2)


@pytest.mark.parametrize(
    ("data", "leader_epoch", "end"),
    [
        pytest.param(plain(1)[:-1] + b"x", 0, 0, id="damaged"),
        pytest.param(plain(2), 0, 0, id="two batches"),
        pytest.param(plain(1), 0, 1, id="begins below the log's end"),
        pytest.param(plain(1, epoch=1), 0, 0, id="a later epoch"),
        pytest.param(plain(1, epoch=-1), 0, 0, id="no epoch"),
        pytest.param(plain(1)[:-1], 0, 0, id="no whole batch"),
        pytest.param(plain(1)[:40], 0, 0, id="no whole header"),
        pytest.param(plain(1)[:16] + b"\1" + plain(1)[17:], 0, 0, id="another magic"),
    ],
)
def test_what_is_not_one_usual_batch_is_left_to_the_kernel(data: bytes, leader_epoch: int, end: int) -> None:
    assert followed_batch(memoryview(data), leader_epoch, end) is None


def test_bytes_that_begin_no_batch_are_refused() -> None:
    with pytest.raises(AppendError):
        run_of(plain(1) + bytes(40))


def test_an_index_that_is_full_takes_no_more(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log", segment_index_bytes="48", segment_bytes="1000000")
    log.append_as_follower(memoryview(bytearray(plain(40))), 0, NOW_MS)
    assert log.log_end_offset == 40
    assert log.segments.active.offset_index.entries == 6
    log.append_as_follower(memoryview(bytearray(plain(1, 40))), 0, NOW_MS)
    assert log.segments.bases[-1] == 40
