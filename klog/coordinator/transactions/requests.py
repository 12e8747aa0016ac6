"""Checks the requests of clients and brokers to the transaction coordinator, and gives each to its id.

Rules: Kafka's `TransactionCoordinator`. The errors are those of the newest version of each API.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Final

from klog.coordinator.transactions.coordinator import TransactionCoordinator
from klog.coordinator.transactions.effects import Done
from klog.coordinator.transactions.records import can_be_written
from klog.coordinator.transactions.transaction import Transaction
from klog.coordinator.transactions.transaction_partition import TransactionPartition
from klog.coordinator.transactions.values import (
    DescribedTransaction,
    InitResult,
    Listing,
    Producer,
    TransactionState,
    VerifyErrors,
)
from klog.formats.names import TopicPartition
from klog.metadata.errors import MetadataError
from klog.protocol.error_codes import ErrorCode

_log = logging.getLogger(__name__)

_FIRST_EPOCH: Final = 0
_STATE_NAMES: Final = frozenset(state.title for state in TransactionState)

InitReply = Callable[[InitResult], None]


@dataclass(frozen=True, slots=True)
class TransactionRequests:
    """The requests of clients and brokers to the transaction coordinator, without their bytes.

    Safe for threads. Each `reply` is called exactly once, now or later, from any thread. Errors are those of
    the newest version of each API; handlers map them for older ones.
    """

    coordinator: TransactionCoordinator

    def _owner(self, transactional_id: str | None) -> TransactionPartition | ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        return self.coordinator.owner_of(transactional_id)

    # -- producers -------------------------------------------------------------------------------------------

    def init_producer(
        self, transactional_id: str | None, timeout_ms: int, expected: Producer, reply: InitReply
    ) -> None:
        """InitProducerId: `reply` gets the producer of the id when it is written.

        Without a transactional id that is a producer of its own, which nobody else is given.
        """
        if transactional_id is None:
            producer_id = self._new_producer_id()
            if producer_id is None:
                reply(InitResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            else:
                reply(InitResult(ErrorCode.NONE, Producer(producer_id, _FIRST_EPOCH)))
            return
        if not can_be_written(transactional_id):
            reply(InitResult(ErrorCode.INVALID_REQUEST))
            return
        if transactional_id and not 0 < timeout_ms <= self.coordinator.settings.max_timeout_ms:
            reply(InitResult(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
            return
        owner = self._owner(transactional_id)
        if isinstance(owner, ErrorCode):
            reply(InitResult(owner))
            return
        if self._init(owner, transactional_id, timeout_ms, expected, reply, None):
            return
        # The tree may be written now, for a new block of ids: no lock is held.
        producer_id = self._new_producer_id()
        if producer_id is None:
            reply(InitResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        self._init(owner, transactional_id, timeout_ms, expected, reply, producer_id)

    def _init(
        self,
        owner: TransactionPartition,
        transactional_id: str,
        timeout_ms: int,
        expected: Producer,
        reply: InitReply,
        producer_id: int | None,
    ) -> bool:
        """Give the request to its id; false if that needs a new producer id."""
        with owner.lock():
            transaction = owner.get(transactional_id)
            if producer_id is None and (transaction is None or transaction.needs_producer_id(expected)):
                return False
            if transaction is None and producer_id is not None:
                transaction = owner.create(transactional_id, producer_id, timeout_ms)
            if transaction is not None:
                transaction.init(timeout_ms, expected, reply, owner.now_ms(), producer_id)
                owner.put_effects(transaction)
        return True

    def _new_producer_id(self) -> int | None:
        """A producer id that nobody has; None if there is none now."""
        try:
            return self.coordinator.services.next_producer_id()
        except MetadataError as error:
            _log.debug("no producer id can be given: %s", error)  # clients ask often
            return None

    # -- transactions ----------------------------------------------------------------------------------------

    def _change(
        self,
        transactional_id: str,
        reply: Done,
        change: Callable[[Transaction, int], None],
        waits_for: Producer | None = None,
    ) -> None:
        """Give a request to its id, with the time.

        If the last transaction of `waits_for` is decided and not complete, that comes first, if it is soon.
        """
        owner = self._owner(transactional_id)
        if isinstance(owner, ErrorCode):
            reply(owner)
            return
        with owner.lock():
            transaction = owner.get(transactional_id)
            if transaction is None:
                owner.put(lambda: reply(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
                return
            if waits_for is not None and transaction.is_ending(waits_for):
                later = partial(self._change, transactional_id, reply, change)
                if owner.wait_for_end(transaction, later):
                    return
            change(transaction, owner.now_ms())
            owner.put_effects(transaction)

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        reply: Done,
    ) -> None:
        """AddPartitionsToTxn and AddOffsetsToTxn: `reply` says that the transaction has the partitions."""

        def add(found: Transaction, now_ms: int) -> None:
            found.add(producer, partitions, reply, now_ms)

        self._change(transactional_id, reply, add, waits_for=producer)

    def end(self, transactional_id: str, producer: Producer, committed: bool, reply: Done) -> None:
        """EndTxn: answered when the decision is written, before the markers are."""
        self._change(
            transactional_id, reply, lambda found, now_ms: found.end(producer, committed, reply, now_ms)
        )

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> ErrorCode | VerifyErrors:
        """AddPartitionsToTxn with verifyOnly: the error of the id, or that of each partition."""
        owner = self._owner(transactional_id)
        if isinstance(owner, ErrorCode):
            return owner
        with owner.lock():
            transaction = owner.get(transactional_id)
            if transaction is None:
                return ErrorCode.INVALID_PRODUCER_ID_MAPPING
            return transaction.verify(producer, partitions)

    # -- administration --------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> DescribedTransaction:
        """DescribeTransactions."""
        owner = self._owner(transactional_id)
        if isinstance(owner, ErrorCode):
            return DescribedTransaction(owner, transactional_id)
        with owner.lock():
            transaction = owner.get(transactional_id)
            if transaction is None:
                return DescribedTransaction(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
            return transaction.described()

    def list(self, states: Collection[str], producer_ids: Collection[int], min_duration_ms: int) -> Listing:
        """ListTransactions. Empty filters and a negative duration match all."""
        if self.coordinator.is_loading:
            return Listing(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        unknown = [state for state in states if state not in _STATE_NAMES]

        def wanted(transaction: Transaction, now_ms: int) -> bool:
            record = transaction.record
            return (
                (not states or record.state.title in states)
                and (not producer_ids or record.producer.producer_id in producer_ids)
                and (min_duration_ms < 0 or now_ms - record.start_ms > min_duration_ms)
            )

        listed = [each for owner in self.coordinator.owned() for each in owner.listed(wanted)]
        return Listing(ErrorCode.NONE, unknown, listed)
