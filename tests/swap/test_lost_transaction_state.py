"""`__transaction_state` is set back to an older state, as from a backup: nobody waits for ever.

Kafka 3.9.1 does: the partitions know a newer epoch of the producer and refuse the marker of the transaction
that was open then, so it never ends and `initTransactions` is answered CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer, TopicPartition

from tests.swap.clients import TIMEOUT_S, Admin, consumer, read
from tests.swap.klog_process import KlogBroker

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
