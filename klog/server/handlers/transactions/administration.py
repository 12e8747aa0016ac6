"""Answers DescribeTransactions and ListTransactions.

Rules: Kafka's `KafkaApis`; KIP-664, KIP-994 (the duration filter).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from klog.client.requests import by_topic
from klog.coordinator.transactions.requests import TransactionRequests
from klog.coordinator.transactions.values import NO_TIMESTAMP, DescribedTransaction, Producer
from klog.server.handlers.answers import Struct, entity_of, send_answer
from klog.server.network.request import Request

_ANY_DURATION_MS: Final = -1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Beside an error Kafka leaves the fields as its schema has them.
_UNKNOWN_PRODUCER: Final = Producer(0, 0)


@dataclass(frozen=True, slots=True)
class TransactionsHandler:
    """Answers the requests of administrators about transactions."""

    transactions: TransactionRequests

    def describe(self, request: Request) -> None:
        """DescribeTransactions."""
        ids = entity_of(request).transactional_ids
        described = (self.transactions.describe(transactional_id) for transactional_id in ids)
        send_answer(request, transaction_states=map(_described, described))

    def list(self, request: Request) -> None:
        """ListTransactions: those of this broker."""
        asked = entity_of(request)
        listing = self.transactions.list(
            asked.state_filters,
            asked.producer_id_filters,
            getattr(asked, "duration_filter", _ANY_DURATION_MS),
        )
        listed = [{**each._asdict(), "transaction_state": each.state} for each in listing.listed]
        send_answer(
            request,
            error_code=listing.error,
            unknown_state_filters=listing.unknown_states,
            transaction_states=listed,
        )


def _described(transaction: DescribedTransaction) -> Struct:
    start_ms, producer = transaction.start_ms, transaction.producer
    if transaction.error:
        start_ms, producer = 0, _UNKNOWN_PRODUCER
    return {
        "error_code": transaction.error,
        "transactional_id": transaction.transactional_id,
        "transaction_state": transaction.state,
        "transaction_timeout": transaction.timeout_ms,
        "transaction_start_time": None
        if start_ms == NO_TIMESTAMP
        else _EPOCH + timedelta(milliseconds=start_ms),
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "topics": by_topic(sorted(transaction.partitions), topic="topic"),
    }
