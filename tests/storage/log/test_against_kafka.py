"""Appends and lives of logs against real Kafka: the same answers, the same state at each step, same files.

Chance makes what is appended and what happens to a log; a seed that fails once fails always.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klog.formats import compression
from klog.formats.checksums import crc32, crc32c
from klog.formats.constants import INT32_MAX
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from tests.peers import KafkaPeer
from tests.peers.log_server import LogServer
from tests.storage.log.beside_kafka import TwoLogs
from tests.storage.log.building import NOW_MS

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def kafka_log(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogServer]:
    with LogServer(kafka3, tmp_path_factory.mktemp("kafka") / "log.log") as server:
        yield server


# -- what a leader takes and refuses


def times(chance: random.Random, now_ms: int) -> int:
    """A timestamp: mostly a good one, else around what a topic allows, none, or one that cannot be."""
    odd = (now_ms - 1001, now_ms - 1000, now_ms + 1000, now_ms + 1001, 0, -1, -2)
    return now_ms if chance.random() < 0.6 else chance.choice(odd)


def odd_batch(chance: random.Random, now_ms: int) -> bytes:
    """A magic 2 batch as a client may send it, or as none should."""
    step = 1 if chance.random() < 0.95 else 2
    count = chance.choice((1, 1, 2, 3, 5))
    base = times(chance, now_ms)
    records = [
        RecordData(
            number * step,
            base if chance.random() < 0.7 else times(chance, now_ms),
            chance.choice((b"k", b"k", b"k", b"l", b"", None)),
            chance.choice((b"", b"v" * 10, b"v" * 100, None)),
            [(b"h", None)] if chance.random() < 0.2 else (),
        )
        for number in range(count)
    ]
    fields: dict[str, Any] = {"codec": chance.choice((0, 0, 0, 1, 2, 3, 4))}
    if chance.random() < 0.2:
        fields["log_append_time_ms"] = chance.choice((now_ms, -1, 5))
    kind = chance.random()
    if kind < 0.5:
        sequence = chance.choice((0, 0, 1, 2, 3, 5, INT32_MAX, -1))
        fields |= {
            "producer_id": chance.choice((1, 2)),
            "producer_epoch": chance.choice((0, 0, 0, 1, -1)),
            "base_sequence": sequence,
        }
    fields["is_transactional"] = kind < 0.2 or kind > 0.98
    fields["is_control"] = 0.95 < kind < 0.98
    data = bytearray(build_batch(records, BatchFields(**fields)))
    if step > 1:
        struct.pack_into(">i", data, 23, count - 1)
    if chance.random() < 0.3:
        position, form, values = chance.choice(HEADER_FAULTS)
        struct.pack_into(form, data, position, chance.choice(values))
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    if chance.random() < 0.05:
        data[chance.randrange(16, len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


HEADER_FAULTS = (
    (0, ">q", (1, -1)),  # base offset
    (12, ">i", (-1, 7)),  # leader epoch
    (21, ">h", (5, 7, 8, 16, 32, 64, 128, 0x7FFF, -1)),  # attributes
    (23, ">i", (-1, 0, 1, INT32_MAX)),  # last offset delta
    (27, ">q", (0, -1)),  # base timestamp
    (35, ">q", (-1, 0, NOW_MS + 5000, -2)),  # maximum timestamp
    (43, ">q", (-1, -2, 3)),  # producer id
    (51, ">h", (-1, -2, 3)),  # producer epoch
    (53, ">i", (-1, -2, 0)),  # base sequence
    (57, ">i", (-1, 0, 1, 2, 1000)),  # count
)


def message(chance: random.Random, magic: int, offset: int, now_ms: int) -> bytes:
    """A message of magic 0 or 1."""
    attributes = 0 if chance.random() < 0.9 else chance.choice((8, 16, 1))
    key = chance.choice((b"k", b"k", b"k", None))
    return sealed(magic, offset, attributes, times(chance, now_ms), key, chance.choice((b"v" * 30, None)))


def sealed(
    magic: int, offset: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None
) -> bytes:
    body = bytes((magic, attributes)) + (struct.pack(">q", timestamp) if magic else b"")
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, len(body) + 4, crc32(body)) + body


def odd_messages(chance: random.Random, now_ms: int) -> bytes:
    """A message set of an old client, compressed or not, all of one magic or not.

    In no codec whose blocks have another size when klog's library makes them.
    """
    magic, count = chance.randrange(2), chance.choice((1, 2, 3))
    codec = chance.choice((0, 0, 1, 1, 4))
    others = 0.95 if codec == 0 else 0.9
    offsets = range(count) if chance.random() < 0.7 else [chance.randrange(10) for _ in range(count)]
    inner = b"".join(
        message(chance, magic if chance.random() < others else 1 - magic, offset, now_ms)
        for offset in offsets
    )
    if codec == 0:
        return inner
    block = compression.compress(codec, inner, magic=magic) if chance.random() < 0.97 else None
    attributes = codec | chance.choice((0, 0, 0, 8))
    wrapper = sealed(
        magic, chance.choice((count - 1, 0, 100)), attributes, times(chance, now_ms), None, block
    )
    return wrapper + (message(chance, magic, 5, now_ms) if chance.random() < 0.08 else b"")


@pytest.mark.parametrize("seed", range(30))
def test_odd_appends_are_answered_as_by_kafka(seed: int, kafka_log: LogServer, tmp_path: Path) -> None:
    chance = random.Random(seed)
    configs: dict[str, str | int] = {
        "compression.type": chance.choice(("producer", "uncompressed")),
        "max.message.bytes": chance.choice((1_000_000, 300, 150)),
        "cleanup.policy": chance.choice(("delete", "compact", "compact,delete")),
        "message.timestamp.type": chance.choice(("CreateTime", "CreateTime", "LogAppendTime")),
    }
    if chance.random() < 0.6:
        configs |= {"message.timestamp.before.max.ms": 1000, "message.timestamp.after.max.ms": 1000}
    logs = TwoLogs(kafka_log, tmp_path, configs)
    logs.check("epoch", 0, 0)
    for _ in range(25):
        logs.now_ms += chance.choice((0, 1, 500))
        data = (odd_batch if chance.random() < 0.8 else odd_messages)(chance, logs.now_ms)
        if chance.random() < 0.05:
            data += odd_batch(chance, logs.now_ms)
        if chance.random() < 0.05:
            data = data[: chance.randrange(len(data))] + bytes(chance.randrange(20))
        logs.check("leader", 0, "CLIENT", data)
    logs.log.release()


# -- the life of a log


class Writer:
    """Makes what the next append may be, from what klog's log knows of its producers.

    A follower's log has gaps, and several batches in one append.
    """

    def __init__(self, logs: TwoLogs, chance: random.Random, *, follower: bool) -> None:
        self._logs = logs
        self._chance = chance
        self._follower = follower

    def append(self, epoch: int) -> None:
        """Append once to both logs."""
        known = {
            pid: [producer.epoch, producer.last_sequence, producer.txn_first_offset >= 0]
            for pid, producer in self._logs.log.producers.by_id.items()
        }
        if not self._follower:
            data, origin, _ = self._batch(known, 0, -1)
            self._logs.check("leader", epoch, origin, data)
            return
        data, offset = b"", self._logs.log.log_end_offset
        for _ in range(self._chance.choice((1, 1, 3, 5))):
            gap = self._chance.choice((0, 0, 0, 2, 50))
            # An epoch begins before a gap that precedes its first batch, unlike in Kafka (`epoch_starts`).
            entries = self._logs.log.epochs.entries
            offset += gap if data or (entries and entries[-1].epoch == epoch) else 0
            batch, _, last_offset = self._batch(known, offset, epoch)
            data, offset = data + batch, last_offset + 1
        # Kafka refuses what is more than a segment; no leader of such a topic sends that.
        if len(data) <= self._logs.configs["segment.bytes"]:
            self._logs.check("follower", epoch, data)

    def _batch(self, known: dict[int, list[int]], base: int, leader_epoch: int) -> tuple[bytes, str, int]:
        chance, now_ms = self._chance, self._logs.now_ms
        pid = chance.choice((-1, 1, 2, 3, 4))
        epoch, sequence, is_open = known.setdefault(pid, [chance.choice((0, 3)), -1, False])
        fields: dict[str, Any] = {"leader_epoch": leader_epoch}
        if is_open and chance.random() < 0.3:
            known[pid][2] = False
            key, value = struct.pack(">hh", 0, chance.randrange(2)), struct.pack(">hi", 0, 1)
            fields |= {"producer_id": pid, "producer_epoch": epoch, "is_transactional": True}
            marker = build_batch(
                [RecordData(base, now_ms, key, value)], BatchFields(is_control=True, **fields)
            )
            return bytes(marker), "COORDINATOR", base
        records, offset = [], base
        for _ in range(chance.choice((1, 1, 2, 4))):
            timestamp = chance.choice((now_ms, now_ms, now_ms - 3000, now_ms + 3000, -1, 0))
            records.append(RecordData(offset, timestamp, b"k", chance.choice((b"", b"v" * 10, b"v" * 60))))
            offset += chance.choice((1, 1, 2)) if self._follower else 1
        last_offset = records[-1].offset
        if pid > 0:
            first = (sequence + 1) & INT32_MAX
            known[pid][1:] = [(first + last_offset - base) & INT32_MAX, is_open or pid > 2]
            fields |= {"producer_id": pid, "producer_epoch": epoch, "base_sequence": first}
        batch = build_batch(
            records, BatchFields(codec=chance.choice((0, 0, 3)), is_transactional=pid > 2, **fields)
        )
        return bytes(batch), "CLIENT", last_offset


def happening(logs: TwoLogs, chance: random.Random, epoch: int, *, has_gaps: bool) -> None:
    """Something other than an append happens to both logs."""
    log, now_ms = logs.log, logs.now_ms
    end = log.log_end_offset
    what = chance.choice(HAPPENINGS)
    if what == "watermark":
        logs.check(what, chance.choice((end, chance.randrange(end + 1))))
    elif what == "truncate":
        logs.cut(chance.choice((end, max(end - 2, 0), chance.randrange(end + 1))))
    elif what == "start":
        logs.check(what, chance.randrange(log.high_watermark + 2))
    elif what == "roll" and log.segments.active.size:
        logs.check(what)
    elif what == "read" and not has_gaps:
        isolation = chance.choice(("LOG_END", "HIGH_WATERMARK", "TXN_COMMITTED"))
        offset = chance.randrange(log.log_start_offset, end + 2)
        logs.check(what, offset, chance.choice((1, 100, 10_000)), isolation, chance.random() < 0.5)
    elif what == "time":
        logs.check(what, chance.choice((-1, -2, -3, 0, now_ms - 2500, now_ms, now_ms + 1000)))
    elif what == "epochEnd":
        logs.check(what, chance.randrange(epoch + 2))
    elif what == "reconfigure":
        logs.reconfigure({"segment.bytes": chance.choice((500, 1500)), "retention.ms": 5000})
    elif what == "close":
        logs.close()
        logs.open(clean=chance.random() < 0.5, log_start_offset=log.log_start_offset)
    elif what == "crash":
        logs.crash()
        logs.open(clean=False, recovery_point=log.recovery_point, log_start_offset=log.log_start_offset)
        logs.require_same_files()
    elif what in ("retain", "flush", "expire"):
        logs.check(what)


HAPPENINGS = (
    *("watermark", "watermark", "watermark", "truncate", "start", "retain", "retain", "roll", "read", "read"),
    *("time", "time", "epochEnd", "flush", "expire", "reconfigure", "close", "crash"),
)


@pytest.mark.parametrize("follower", [False, True], ids=["leader", "follower"])
@pytest.mark.parametrize("seed", range(20))
def test_a_log_lives_as_it_does_in_kafka(
    seed: int, follower: bool, kafka_log: LogServer, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    configs: dict[str, str | int] = {
        "segment.bytes": chance.choice((1000, 1500, 4000)),
        # Kafka refuses to recover a segment whose index was full before it was closed and opened again.
        "segment.index.bytes": 4000,
        "index.interval.bytes": chance.choice((0, 1, 100, 400)),
        "segment.ms": chance.choice((10**9, 3000, 10_000)),
        "cleanup.policy": chance.choice(("delete", "delete", "compact", "compact,delete")),
        "retention.ms": chance.choice((-1, 5000, 20_000)),
        "retention.bytes": chance.choice((-1, 1000, 4000)),
        "message.timestamp.type": chance.choice(("CreateTime", "CreateTime", "LogAppendTime")),
        "preallocate": chance.choice(("false", "true")),
    }
    logs = TwoLogs(kafka_log, tmp_path, configs, chance.choice((86_400_000, 8000)))
    writer = Writer(logs, chance, follower=follower)
    epoch = 0
    logs.check("epoch", 0, 0)
    for _ in range(40):
        logs.now_ms += chance.choice((0, 1, 100, 1000))
        if chance.random() < 0.05:
            epoch += 1
            logs.check("epoch", epoch, logs.log.log_end_offset)
        elif chance.random() < 0.5:
            writer.append(epoch)
        else:
            happening(logs, chance, epoch, has_gaps=follower)
    logs.close()
