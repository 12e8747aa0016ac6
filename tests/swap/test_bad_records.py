"""Records of the internal topics that nobody can read: each is named in the log, and the rest is loaded."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from klog.coordinator.groups.records import group_key, offset_key, offset_value
from klog.coordinator.groups.values import CommittedOffset
from klog.coordinator.transactions.records import transaction_key
from klog.kernel import kernel
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.kernel.columns import BatchTable
from tests.swap.clients import Admin
from tests.swap.klog_process import KlogBroker

NOW_MS = 1_700_000_000_000
CONFIG = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "log.cleaner.enable": "false",
}
Pair = tuple[bytes | None, bytes | None]


def add_records(directory: Path, pairs: Sequence[Pair]) -> list[int]:
    """Appends records behind the broker's back, in batches of three. Returns their offsets."""
    (path,) = directory.glob("*.log")
    table = BatchTable()
    kernel.scan(memoryview(path.read_bytes()), 0, True, table)
    first = table.last_offset[-1] + 1
    with path.open("ab") as file:
        for at in range(0, len(pairs), 3):
            records = [RecordData(number, NOW_MS, *pair) for number, pair in enumerate(pairs[at : at + 3])]
            batch = build_batch(records, BatchFields())
            batch[:8] = (first + at).to_bytes(8, "big")
            file.write(batch)
    return list(range(first, first + len(pairs)))


def unreadable(chance: random.Random, valid: Sequence[tuple[bytes, bytes]]) -> Iterator[Pair]:
    """Records that are cut, have another version, or mean nothing."""
    yield None, b"value"
    yield b"", b"value"
    for key, value in valid:
        for size in {0, 1, len(value) - 1, chance.randrange(len(value))}:
            yield key, value[:size]
        yield key, b"\x7f\xff" + value[2:]
        yield key[: len(key) - 1], value


def commit(bootstrap: str, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
    consumer.close()


def committed(bootstrap: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    (found,) = consumer.committed([TopicPartition("t", 0)], timeout=60)
    consumer.close()
    return int(found.offset)


def transact(bootstrap: str, transactional_id: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("t", b"value")
    producer.commit_transaction(60)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.slow
def test_records_that_cannot_be_read_are_named_and_the_rest_is_loaded(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with KlogBroker(tmp_path, CONFIG) as klog:
        klog.start()
        Admin(klog.bootstrap).create({"t": (1, {})})
        commit(klog.bootstrap, "before", 5)
        transact(klog.bootstrap, "before")
        klog.kill()
        logs = klog.log_directories()[0]
        value = offset_value(CommittedOffset(9, 0, "note", NOW_MS))
        group = b"\0\3\0\x08consumer" + chance.randbytes(3) + b"\x7f\xff"
        bad = list(
            unreadable(chance, [(offset_key("before", ("t", 0)), value), (group_key("before"), group)])
        )
        last = offset_key("after", ("t", 0)), value
        *bad_offsets, _ = add_records(logs / "__consumer_offsets-0", [*bad, last])
        states = list(unreadable(chance, [(transaction_key("bad"), b"\0\0" + bytes(31) + b"\xff" * 4)]))
        bad_states = add_records(logs / "__transaction_state-0", states)
        klog.start()
        assert (committed(klog.bootstrap, "before"), committed(klog.bootstrap, "after")) == (5, 9)
        transact(klog.bootstrap, "before")
        for offset in bad_offsets:
            assert f"__consumer_offsets-0: the record at offset {offset} is not loaded" in klog.log_text
        for offset in bad_states:
            assert f"__transaction_state-0: the record at offset {offset} is not loaded" in klog.log_text
        assert "Traceback" not in klog.log_text
        klog.stop()
