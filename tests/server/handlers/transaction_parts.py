"""A transaction coordinator that answers as a test says, and the handlers in front of it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from klog.coordinator.transactions.values import (
    DescribedTransaction,
    InitResult,
    Listing,
    Producer,
    VerifyErrors,
)
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.transactions.administration import TransactionsHandler
from klog.server.handlers.transactions.producers import ProducersHandler
from tests.server.handlers.parts import FakeRequest, answer_of, request_of

KNOWN = frozenset(
    TopicPartition(topic, number) for topic in ("t", "u", "__consumer_offsets") for number in (0, 1)
)


class FakeTransactions:
    """Keeps what it is asked, and answers with what the test has set."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.init = InitResult(ErrorCode.NONE, Producer(7, 3))
        self.error = ErrorCode.NONE
        self.verified: ErrorCode | VerifyErrors = ErrorCode.NONE
        self.described: dict[str, DescribedTransaction] = {}
        self.listing = Listing(ErrorCode.NONE)
        # If a list, replies wait in it.
        self.waiting: list[Callable[[], None]] | None = None

    def _reply(self, reply: Callable[[], None]) -> None:
        if self.waiting is None:
            reply()
        else:
            self.waiting.append(reply)

    def init_producer(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        expected: Producer,
        reply: Callable[[InitResult], None],
    ) -> None:
        self.asked.append((transactional_id, timeout_ms, expected))
        self._reply(lambda: reply(self.init))

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        reply: Callable[[ErrorCode], None],
    ) -> None:
        self.asked.append((transactional_id, producer, set(partitions)))
        self._reply(lambda: reply(self.error))

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> ErrorCode | VerifyErrors:
        self.asked.append(("verify", transactional_id, producer, set(partitions)))
        return self.verified

    def end(
        self,
        transactional_id: str,
        producer: Producer,
        committed: bool,
        reply: Callable[[ErrorCode], None],
    ) -> None:
        self.asked.append((transactional_id, producer, committed))
        self._reply(lambda: reply(self.error))

    def describe(self, transactional_id: str) -> DescribedTransaction:
        return self.described.get(
            transactional_id, DescribedTransaction(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
        )

    def list(self, states: Collection[str], producer_ids: Collection[int], min_duration_ms: int) -> Listing:
        self.asked.append((tuple(states), tuple(producer_ids), min_duration_ms))
        return self.listing


class TransactionHandlers:
    """The handlers, by API."""

    def __init__(self) -> None:
        self.transactions = FakeTransactions()
        self.producers = ProducersHandler(self.transactions, KNOWN.__contains__, len)
        administration = TransactionsHandler(self.transactions)
        self.handlers = {
            ApiKey.INIT_PRODUCER_ID: self.producers.init_producer,
            ApiKey.ADD_PARTITIONS_TO_TXN: self.producers.add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self.producers.add_offsets,
            ApiKey.END_TXN: self.producers.end,
            ApiKey.DESCRIBE_TRANSACTIONS: administration.describe,
            ApiKey.LIST_TRANSACTIONS: administration.list,
        }

    def send(self, api: ApiKey, version: int, /, **values: Any) -> FakeRequest:
        """Has a request handled; its answer may still be to come."""
        request = request_of(api, version, **values)
        self.handlers[api](request)
        return request

    def ask(self, api: ApiKey, version: int, /, **values: Any) -> Any:
        """The answer to a request that is answered at once."""
        return answer_of(self.send(api, version, **values))
