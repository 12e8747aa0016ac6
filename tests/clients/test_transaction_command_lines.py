"""The command lines of kafka-transactions, with Kafka's tool and with klog: the same cells."""

from __future__ import annotations

import confluent_kafka
import pytest

from tests.clients.test_command_lines import Both, bootstrap, both  # noqa: F401 (fixtures)

pytestmark = pytest.mark.kafka

TRANSACTIONS = ("org.apache.kafka.tools.TransactionsCommand", "transactions")
TOPICS = ("org.apache.kafka.tools.TopicCommand", "topics")


def cells(out: str) -> list[list[str]]:
    """The cells of a table, without how titles are written and what stands for nothing."""
    title, *rows = (line.split() for line in out.splitlines() if line.strip())
    written = [[cell.replace("-", "").lower() for cell in title]]
    return written + sorted(["-" if cell == "None" else cell for cell in row] for row in rows)


def test_transactions_are_shown_alike(both: Both, bootstrap: str) -> None:  # noqa: F811
    assert both.klog(TOPICS, "--create", "--topic", "orders", "--partitions", 1).succeeded
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "loader", "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("orders", "a")
    assert producer.flush(60) == 0
    partition = ("--topic", "orders", "--partition", 0)
    for words in (("list",), ("describe-producers", *partition)):
        kafka, klog = both.kafka(TRANSACTIONS, *words), both.klog(TRANSACTIONS, *words)
        assert kafka.succeeded
        assert klog.succeeded
        assert cells(klog.out) == cells(kafka.out)
        assert len(cells(klog.out)) == 2
    kafka, klog = (
        run(TRANSACTIONS, "describe", "--transactional-id", "loader") for run in (both.kafka, both.klog)
    )
    (titles, theirs), (ours_titles, ours) = cells(kafka.out), cells(klog.out)
    assert titles == ours_titles
    duration = titles.index("transactiondurationms")
    assert theirs[:duration] + theirs[duration + 1 :] == ours[:duration] + ours[duration + 1 :]
    hanging = ("find-hanging", *partition, "--max-transaction-timeout", 1)
    kafka, klog = both.kafka(TRANSACTIONS, *hanging), both.klog(TRANSACTIONS, *hanging)
    assert kafka.succeeded
    assert klog.succeeded
    assert len(cells(kafka.out)) == 1  # titles only; klog prints nothing then
    assert klog.out == ""
    producer.abort_transaction(60)
    for unknown in (
        ("describe", "--transactional-id", "no-such-id"),
        ("abort", *partition, "--start-offset", 9),
    ):
        assert not both.kafka(TRANSACTIONS, *unknown).succeeded
        assert not both.klog(TRANSACTIONS, *unknown).succeeded
