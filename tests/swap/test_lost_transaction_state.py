"""`__transaction_state` or the metadata is set back to an older state: nobody waits for ever.

Kafka 3.9.1 does: the partitions know a newer epoch of the producer or of the coordinator, and refuse the
marker of the transaction. It never ends, and `initTransactions` is answered CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer, TopicPartition

from klog.protocol.apis import ApiKey
from tests.swap.clients import TIMEOUT_S, Admin, consumer, read
from tests.swap.klog_process import KlogBroker
from tests.swap.raw_transactions import ask

TOPIC: Final = "t"
STATE: Final = "__transaction_state-0"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def open_transaction(bootstrap: str, value: str) -> Producer:
    """A producer of the id `x` with one record in an open transaction."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x", "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(TOPIC, value)
    assert producer.flush(TIMEOUT_S) == 0
    return producer


def committed(bootstrap: str) -> list[bytes | None]:
    (log,) = read(bootstrap, [(TOPIC, 0)], "read_committed").values()
    return [record.value for record in log.values()]


def know_coordinator_epoch(bootstrap: str, coordinator_epoch: int) -> None:
    """Abort what the one producer has open in partition 0, as a coordinator in this epoch."""
    wanted = [{"name": TOPIC, "partition_indexes": (0,)}]
    (topic,) = ask(bootstrap, ApiKey.DESCRIBE_PRODUCERS, 0, topics=wanted).topics
    (producer,) = topic.partitions[0].active_producers
    (answer,) = ask(
        bootstrap,
        ApiKey.WRITE_TXN_MARKERS,
        1,
        markers=[
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "transaction_result": False,
                "topics": wanted,
                "coordinator_epoch": coordinator_epoch,
            }
        ],
    ).markers
    assert answer.topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "ended"])
def test_a_transaction_that_was_ended_in_a_newer_epoch_ends_again(tmp_path: Path, is_open: bool) -> None:
    config = {"transaction.state.log.num.partitions": 1, "log.flush.scheduler.interval.ms": 100}
    logs, saved = tmp_path / "klog" / "logs", tmp_path / "saved"
    with KlogBroker(tmp_path / "klog", config) as klog:
        klog.start()
        Admin(klog.bootstrap).create({TOPIC: (1, {})})
        left = open_transaction(klog.bootstrap, "aborted by the next")
        klog.stop()
        shutil.copytree(logs / STATE, saved)
        klog.start()
        open_transaction(klog.bootstrap, "first").commit_transaction(TIMEOUT_S)
        last = open_transaction(klog.bootstrap, "never ended" if is_open else "second")
        if not is_open:
            last.commit_transaction(TIMEOUT_S)
        klog.stop()
        del left, last
        shutil.rmtree(logs / STATE)
        shutil.copytree(saved, logs / STATE)
        klog.start()
        open_transaction(klog.bootstrap, "after").commit_transaction(TIMEOUT_S)
        assert committed(klog.bootstrap) == [b"first", *([] if is_open else [b"second"]), b"after"]
        with consumer(klog.bootstrap, "read_committed") as reader:
            _, stable = reader.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=TIMEOUT_S)
        with consumer(klog.bootstrap) as reader:
            _, end = reader.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=TIMEOUT_S)
        assert stable == end
        (line,) = [line for line in klog.complaints if "__transaction_state" in line]
        assert "has lost records of the id" in line


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_a_transaction_ends_where_a_newer_epoch_of_the_coordinator_is_known(
    tmp_path: Path, commits: bool
) -> None:
    with KlogBroker(tmp_path / "klog", {"transaction.state.log.num.partitions": 1}) as klog:
        klog.start()
        Admin(klog.bootstrap).create({TOPIC: (1, {})})
        first = open_transaction(klog.bootstrap, "of a lost history")
        know_coordinator_epoch(klog.bootstrap, 100)
        first.produce(TOPIC, "after it")
        first.commit_transaction(TIMEOUT_S) if commits else first.abort_transaction(TIMEOUT_S)
        open_transaction(klog.bootstrap, "next").commit_transaction(TIMEOUT_S)
        klog.stop()
        klog.start()
        open_transaction(klog.bootstrap, "last").commit_transaction(TIMEOUT_S)
        after = [b"after it"] if commits else []
        assert committed(klog.bootstrap) == [*after, b"next", b"last"]
        assert any("the coordinator epoch" in line for line in klog.complaints)
