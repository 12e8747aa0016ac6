"""`kafka-transactions` of Kafka 3.9 and 4.1, with all its actions, on klog and on Kafka 3.9."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.protocol.apis import ApiKey
from klog.protocol.channel import Channel
from klog.protocol.error_codes import ErrorCode
from klog.protocol.produce_request import ProduceRequest, encode_produce_request
from klog.protocol.produce_response import decode_produce_response
from tests.clients.python_clients import ConfluentKafka, Sent
from tests.clients.transactors import ConfluentTransactor
from tests.peers.tool_server import ToolServer
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

TOOL = "org.apache.kafka.tools.TransactionsCommand"
VERIFICATION = "transaction.partition.verification.enable"
PRODUCE_VERSION = 9
# Of no transactional id. The tests share a broker, and the id of a producer must not come back.
_lost_producers = itertools.count(1_000_000_000)
_numbers = itertools.count()


class Transactions:
    """The tool on one broker."""

    def __init__(self, tools: ToolServer, broker) -> None:
        self._tools = tools
        self._at = ("--bootstrap-server", broker.bootstrap_servers)

    def run(self, *words: object) -> str:
        done = self._tools.run(TOOL, *self._at, *words)
        assert done.status == 0, done
        return done.out

    def rows(self, *words: object) -> list[dict[str, str]]:
        """The rows of its table, by the titles of columns."""
        head, *rows = (line.split() for line in self.run(*words).splitlines() if line.strip())
        return [dict(zip(head, row, strict=False)) for row in rows]

    def states(self) -> dict[str, str]:
        return {row["TransactionalId"]: row["TransactionState"] for row in self.rows("list")}

    def producers(self, topic: str) -> dict[str, str]:
        """Where the transaction of each producer starts."""
        rows = self.rows("describe-producers", "--topic", topic, "--partition", 0)
        return {row["ProducerId"]: row["CurrentTransactionStartOffset"] for row in rows}

    def hanging(self, topic: str) -> list[tuple[str, str]]:
        """Producer and start offset of transactions that hang. Without a limit of their age."""
        wanted = ("--topic", topic, "--partition", 0, "--max-transaction-timeout", 0)
        rows = self.rows("find-hanging", *wanted)
        return [(row["ProducerId"], row["StartOffset"]) for row in rows]


@pytest.fixture
def transactions(tools, broker) -> Transactions:
    return Transactions(tools, broker)


@pytest.fixture
def open_one(broker, new_topic) -> Iterator[tuple[str, str]]:
    """A topic with an open transaction after one record, and its transactional id."""
    topic, name = new_topic(), f"tool-transaction-{next(_numbers)}"
    ConfluentKafka(broker.bootstrap_servers).write(topic, [Sent(b"plain")])
    # It is still open when the tool has run several times.
    producer = ConfluentTransactor(broker.bootstrap_servers, name, timeout_ms=600_000)
    producer.begin()
    producer.send(topic, b"open")
    yield topic, name
    producer.close()


def test_transactions_are_listed_and_described(transactions: Transactions, broker, open_one) -> None:
    topic, name = open_one
    done = ConfluentTransactor(broker.bootstrap_servers, f"{name}-done")
    done.begin()
    done.send(topic, b"done")
    done.commit()
    assert transactions.states()[name] == "Ongoing"
    eventually(lambda: transactions.states()[f"{name}-done"] == "CompleteCommit")
    (row,) = transactions.rows("describe", "--transactional-id", name)
    assert (row["TransactionState"], row["TransactionTimeoutMs"], row["ProducerEpoch"]) == (
        "Ongoing",
        "600000",
        "0",
    )
    assert row["TopicPartitions"] == f"{topic}-0"
    assert abs(int(row["CurrentTransactionStartTimeMs"]) / 1000 - time.time()) < 600
    (row,) = transactions.rows("describe", "--transactional-id", f"{name}-done")
    assert row["TransactionState"] == "CompleteCommit"


def test_long_transactions_are_listed(transactions: Transactions, open_one) -> None:
    _, name = open_one
    listed = transactions.rows("list", "--duration-filter", 3_600_000)
    assert name not in {row["TransactionalId"] for row in listed}
    listed = transactions.rows("list", "--duration-filter", 0)
    assert name in {row["TransactionalId"] for row in listed}


def test_an_id_that_does_not_exist_is_not_described(tools, broker) -> None:
    at = ("--bootstrap-server", broker.bootstrap_servers)
    done = tools.run(TOOL, *at, "describe", "--transactional-id", "nobody")
    assert done.status == 1
    assert "nobody" in done.out + done.err


def test_the_producers_of_a_partition_are_described(transactions: Transactions, open_one) -> None:
    topic, name = open_one
    (row,) = transactions.rows("describe", "--transactional-id", name)
    assert transactions.producers(topic)[row["ProducerId"]] == "1"


def test_a_transaction_of_a_live_producer_does_not_hang(transactions: Transactions, open_one) -> None:
    topic, _ = open_one
    assert transactions.hanging(topic) == []


def write_outside_of_any_transaction(broker, topic: str, producer_id: int) -> ErrorCode:
    """As a delayed request of a producer did before KIP-890: the coordinator does not know of it."""
    host, _, port = broker.bootstrap_servers.partition(":")
    fields = BatchFields(producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    now_ms = time.time_ns() // 1_000_000
    data = memoryview(build_batch([RecordData(0, now_ms, b"k", b"late")], fields))
    request = ProduceRequest("unknown", -1, 30_000, [(topic, [(0, data)])])
    body = encode_produce_request(PRODUCE_VERSION, request)
    with Channel(host, int(port)) as channel:
        answer = channel.request(ApiKey.PRODUCE, PRODUCE_VERSION, body, decode_produce_response)
    ((_, (partition,)),) = answer.topics
    return ErrorCode(partition.error_code)


@pytest.fixture
def without_verification(broker) -> Iterator[None]:
    """A time in which brokers take what belongs to no transaction."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    def alter(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(VERIFICATION, "false", incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result()

    alter(AlterConfigOpType.SET)
    yield
    alter(AlterConfigOpType.DELETE)


def test_a_hanging_transaction_is_found_and_aborted(
    transactions: Transactions, broker, new_topic, without_verification
) -> None:
    topic = new_topic()
    producer_id = next(_lost_producers)
    # The change of the config takes a moment to reach the broker.
    eventually(lambda: write_outside_of_any_transaction(broker, topic, producer_id) is ErrorCode.NONE)
    client = ConfluentKafka(broker.bootstrap_servers)
    client.write(topic, [Sent(b"held back")])
    assert client.read(topic, isolation="read_committed") == []
    # The tool looks for what is older than the limit, in milliseconds.
    eventually(lambda: transactions.hanging(topic) == [(str(producer_id), "0")])
    transactions.run("abort", "--topic", topic, "--partition", 0, "--start-offset", 0)
    eventually(lambda: client.read(topic, isolation="read_committed"))
    assert [one.value for one in client.read(topic, isolation="read_committed")] == [b"held back"]
    assert transactions.hanging(topic) == []
    assert transactions.producers(topic)[str(producer_id)] == "None"
