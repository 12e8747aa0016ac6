"""The transactions of one producer: its id, the partitions that take part, commit and abort.

Rules: KIP-98 and KIP-360. InitProducerId fences earlier producers of the same transactional id and aborts
what they left open. A partition is added to the transaction before its first records are sent.
CONCURRENT_TRANSACTIONS means that the transaction before is not complete yet; it passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from klog.client.cluster import Cluster
from klog.client.connection import Connection
from klog.client.coordinators import Coordinator, CoordinatorType
from klog.client.errors import RefusedError
from klog.client.producer_id import NO_PRODUCER, ProducerId
from klog.client.requests import ask, by_topic
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode, error_code

_LAST_CLIENT_ADD: Final = 3  # later versions are for brokers
_LAST_END: Final = 4  # version 5 gives a new epoch with each end (KIP-890, part 2)
_LAST_INIT: Final = 5
_FENCED: Final = "another producer uses the same transactional id, or the transaction has timed out"
_CURES: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.INVALID_PRODUCER_EPOCH: _FENCED,
    ErrorCode.PRODUCER_FENCED: _FENCED,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "brokers limit it by transaction.max.timeout.ms",
}


class Transaction:
    """What a transactional id does now. For one thread.

    `producer` is known after `open`; `partitions` are those of the transaction that is open.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.producer: ProducerId = NO_PRODUCER
        self.partitions: set[TopicPartition] = set()
        self._timeout_ms = timeout_ms
        self._coordinator = Coordinator(cluster, CoordinatorType.TRANSACTION, transactional_id)

    def open(self) -> None:
        """Get the producer's id and epoch. Raises ClientError, ChannelError."""
        self.producer = self._coordinator.ask(self._init)

    def _init(self, connection: Connection) -> ProducerId:
        answer = ask(
            connection,
            ApiKey.INIT_PRODUCER_ID,
            at_most=_LAST_INIT,
            transactional_id=self.transactional_id,
            transaction_timeout=self._timeout_ms,
            producer_id=NO_PRODUCER.producer_id,
            producer_epoch=NO_PRODUCER.epoch,
        )
        self._require(answer.error_code)
        return ProducerId(int(answer.producer_id), int(answer.producer_epoch))

    def _require(self, code: int) -> None:
        found = error_code(code)
        if found is not ErrorCode.NONE:
            raise RefusedError(f"transactional id {self.transactional_id}", found, cure=_CURES.get(found))

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Let partitions take part. Raises ClientError, ChannelError."""
        new = sorted(set(partitions) - self.partitions)
        if new:
            self._coordinator.ask(lambda connection: self._add(connection, new))
            self.partitions.update(new)

    def _add(self, connection: Connection, partitions: Iterable[TopicPartition]) -> None:
        answer = ask(
            connection,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            at_most=_LAST_CLIENT_ADD,
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer.producer_id,
            v3_and_below_producer_epoch=self.producer.epoch,
            v3_and_below_topics=by_topic(partitions),
        )
        codes = [
            error_code(part.partition_error_code)
            for each in answer.results_by_topic_v3_and_below
            for part in each.results_by_partition
        ]
        # If one partition is refused, the others are OPERATION_NOT_ATTEMPTED.
        for code in sorted(codes, key=lambda code: code is ErrorCode.OPERATION_NOT_ATTEMPTED):
            self._require(code)

    def end(self, *, committed: bool) -> None:
        """Commit or abort what is open, if anything is. Raises ClientError, ChannelError."""
        if self.partitions:
            self._coordinator.ask(lambda connection: self._end(connection, committed))
            self.partitions.clear()

    def _end(self, connection: Connection, committed: bool) -> None:
        answer = ask(
            connection,
            ApiKey.END_TXN,
            at_most=_LAST_END,
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            committed=committed,
        )
        self._require(answer.error_code)
