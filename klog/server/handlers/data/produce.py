"""Answers Produce requests: writes records to partitions that this broker leads.

Rules: Kafka's `KafkaApis.handleProduceRequest` and `ReplicaManager.appendRecords`; KIP-951 (the new leader
in an error). `produce_screening` checks first what a request may contain. With acks=0 there is no answer,
and an error closes the connection, so that the producer looks up the leader again. With acks=1 the answer
follows the local write, with acks=-1 it waits until all in-sync replicas have the records. The log reports
a disk that fails.

Before transactional records open a transaction in a partition, the coordinator is asked whether the partition
is a part of it (`transactions.verification`). If this broker does not coordinate it, the records are written
by the thread that has the coordinator's answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from klog.formats.errors import StorageError
from klog.formats.names import PartitionKey
from klog.protocol.acls import AclOperation, AclResourceType
from klog.protocol.error_codes import ErrorCode
from klog.protocol.leader_hints import NO_HINT, NodeEndpoint
from klog.protocol.produce_request import PartitionRecords, ProduceRequest, Records, decode_produce_request
from klog.protocol.produce_response import PartitionProduced, ProduceResponse, encode_produce_response
from klog.replication.acknowledging import DelayedProduce
from klog.replication.partition import ALL_IN_SYNC, Partition, PartitionError
from klog.replication.partition_state import ANY_EPOCH
from klog.replication.purgatory import Purgatory
from klog.replication.replica_waits import PartitionWait
from klog.server.counters.topic_stats import BrokerTopicStats, TopicStats
from klog.server.handlers.access import Access
from klog.server.handlers.data.produce_screening import (
    RefusedRequestError,
    Transaction,
    has_transactional_records,
    is_usual,
    screen,
    usual_transaction,
)
from klog.server.handlers.partition_lookup import PartitionLookup
from klog.server.handlers.topics.topic_metadata import INTERNAL_TOPICS
from klog.server.network.request import Request
from klog.server.transactions.verification import Verification, Verified, produce_refusal
from klog.storage.log.append_values import AppendError, Origin, OwnLimitError
from klog.storage.log.verification import UNCHECKED

_log = logging.getLogger(__name__)

# The client id of Kafka's brokers among themselves. Only this client may write to internal topics.
ADMIN_CLIENT_ID: Final = "__admin_client"
HINTS_FROM: Final = 10
_NO_ERROR: Final = int(ErrorCode.NONE)
_NO_RECORDS: Final = memoryview(bytearray())
_NOTHING_REFUSED: Final[Mapping[PartitionKey, PartitionProduced]] = {}

# Errors that Kafka answers without a log start offset.
_BARE: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
    )
)

_TOO_LARGE: Final = frozenset((ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE))

Topics = list[tuple[str, list[PartitionRecords]]]
Answers = list[tuple[str, list[PartitionProduced]]]


class ProduceHandler:
    """Answers Produce requests. `clock_ms` stamps records, `timer_ms` is the clock of the purgatory."""

    def __init__(
        self,
        lookup: PartitionLookup,
        purgatory: Purgatory,
        clock_ms: Callable[[], int],
        timer_ms: Callable[[], int],
        topic_stats: BrokerTopicStats,
        verification: Verification,
        access: Access | None = None,
    ) -> None:
        """Without `access` everybody may write to all topics."""
        self._access = access
        self._lookup = lookup
        self._verification = verification
        self._purgatory = purgatory
        self._clock_ms = clock_ms
        self._timer_ms = timer_ms
        self._topic_stats = topic_stats.topics

    def handle(self, request: Request) -> None:
        """Write the request's records, and answer now or when they are replicated."""
        version = request.api_version
        produce = decode_produce_request(version, request.body)
        denied = _NOTHING_REFUSED
        if self._access is not None:
            if not self._may_use_id(self._access, request, produce):
                what = "the client may not write with this transactional id"
                refusal = RefusedRequestError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, what)
                self._refuse_all(request, produce, refusal)
                return
            denied = _denied(self._access, request, produce)
        asked, refused = produce.topics, denied
        if not is_usual(version, asked):
            transaction = usual_transaction(version, produce)
            if transaction is None:
                try:
                    asked, wrong, transaction = screen(version, produce, self._lookup.known)
                except RefusedRequestError as refusal:
                    self._refuse_all(request, produce, refusal)
                    return
                refused = {**wrong, **denied}
            if transaction is not None and denied:
                transaction = transaction.without(denied)
            if transaction is not None:
                if asked is not produce.topics:
                    produce = produce._replace(topics=asked)
                self._verify(request, produce, refused, transaction)
                return
        self._write(request, produce, asked, refused, None)

    @staticmethod
    def _may_use_id(access: Access, request: Request, produce: ProduceRequest) -> bool:
        """Whether the client may write transactional records, if there are any, with the request's id."""
        transactional_id = produce.transactional_id
        return (
            transactional_id is None
            or not has_transactional_records(produce.topics)
            or access.allows(request, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id)
        )

    def _verify(
        self,
        request: Request,
        produce: ProduceRequest,
        refused: Mapping[PartitionKey, PartitionProduced],
        transaction: Transaction,
    ) -> None:
        """Write the records to the partitions that are in their producer's transaction."""
        version = request.api_version

        def verified(found: Verified) -> None:
            unverified: dict[PartitionKey, PartitionProduced] = {
                key: PartitionProduced(key[1], error, error_message=what)
                for key, verdict in found.errors.items()
                for error, what in (produce_refusal(verdict, version),)
            }
            try:
                self._write(request, produce, produce.topics, {**refused, **unverified}, found.guards)
            except Exception:
                # In another thread nobody else would answer.
                if request.answered:
                    raise
                _log.exception("%r failed", request)
                body = self.failed(request, ErrorCode.UNKNOWN_SERVER_ERROR)
                if body is None:
                    request.close_connection()
                else:
                    request.respond(body)

        # Transactional records without an id have been refused.
        self._verification.begin(
            produce.transactional_id or "", transaction.producer, transaction.sequences, verified
        )

    def _write(
        self,
        request: Request,
        produce: ProduceRequest,
        asked: Topics,
        refused: Mapping[PartitionKey, PartitionProduced],
        guards: Mapping[PartitionKey, object] | None,
    ) -> None:
        """Write what is not refused, and answer. `guards` is None if nothing is transactional."""
        now_ms = self._clock_ms()
        waits: dict[PartitionKey, PartitionWait] = {}
        topics: Answers = []
        failed = False
        for topic, partitions in asked:
            internal = topic in INTERNAL_TOPICS and request.client_id != ADMIN_CLIENT_ID
            results: list[PartitionProduced] = []
            for index, records in partitions:
                key = topic, index
                if key in refused:
                    result, required_offset = refused[key], 0
                else:
                    guard = UNCHECKED if guards is None else guards.get(key)
                    result, required_offset = self._append(
                        key, records, produce.acks, now_ms, internal, guard
                    )
                results.append(result)
                if result.error_code != _NO_ERROR:
                    failed = True
                elif required_offset:
                    waits[key] = PartitionWait(required_offset)
            topics.append((topic, results))
        if produce.acks == 0:
            if failed:
                request.close_connection()
            else:
                request.respond(None)
        elif waits:
            self._wait(request, topics, waits, self._timer_ms() + produce.timeout_ms)
        else:
            self._answer(request, topics, failed=failed)

    def failed(self, request: Request, error: ErrorCode) -> list[bytes] | None:
        """The answer to a request whose handling failed; None if the client expects no answer."""
        produce = decode_produce_request(request.api_version, request.body)
        return None if produce.acks == 0 else _error_everywhere(request, produce, error)

    # -- writing ---------------------------------------------------------------------------------------------

    def _append(
        self,
        key: PartitionKey,
        records: Records,
        acks: int,
        now_ms: int,
        internal: bool,
        guard: object | None,
    ) -> tuple[PartitionProduced, int]:
        """Write to one partition; returns the result and the high watermark to wait for (0: none)."""
        index = key[1]
        lookup = self._lookup
        if not lookup.known(key):
            return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not ALL_IN_SYNC <= acks <= 1:
            return _refused(index, ErrorCode.INVALID_REQUIRED_ACKS)
        stats = self._topic_stats[key[0]]
        stats.produces += 1
        if internal:
            return _refused(index, ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = lookup.replicas.partitions.get(key)
        if partition is None:
            return _refused(index, lookup.missing(key))
        try:
            data = _NO_RECORDS if records is None else records
            info, moved = partition.append(data, acks, now_ms, Origin.CLIENT, ANY_EPOCH, guard)
        except AppendError as refused:
            refusal = _refusal(index, refused, partition)
            _count_refusal(stats, refusal.error_code, records)
            return refusal, 0
        except PartitionError as refused:
            _count_refusal(stats, refused.error, records)
            start = -1 if refused.error in _BARE else partition.log.log_start_offset
            return PartitionProduced(index, refused.error, -1, -1, start, (), refused.what), 0
        except (OSError, StorageError):
            return _refused(index, ErrorCode.KAFKA_STORAGE_ERROR)
        if not info.duplicate:
            records_in = info.last_offset - info.first_offset + 1
            stats.messages_in += records_in
            if info.converted:
                stats.produce_conversions += records_in
            stats.bytes_in += info.size_bytes
            lookup.replicas.appended(key, moved)
        required_offset = info.last_offset + 1
        if acks != ALL_IN_SYNC or partition.log.high_watermark >= required_offset:
            required_offset = 0
        produced = PartitionProduced(
            index, _NO_ERROR, info.first_offset, info.log_append_time_ms, info.log_start_offset
        )
        return produced, required_offset

    # -- answering -------------------------------------------------------------------------------------------

    @staticmethod
    def _refuse_all(request: Request, produce: ProduceRequest, refused: RefusedRequestError) -> None:
        if refused.error is ErrorCode.UNKNOWN_SERVER_ERROR:
            _log.warning("%r is refused with %s: %s", request, refused.error.name, refused.what)
        if produce.acks == 0:
            request.close_connection()
        else:
            request.respond(_error_everywhere(request, produce, refused.error, refused.what))

    def _wait(
        self, request: Request, topics: Answers, waits: Mapping[PartitionKey, PartitionWait], due_ms: int
    ) -> None:
        def answer(outcome: Mapping[PartitionKey, PartitionWait]) -> None:
            final = [
                (topic, [_after_wait(result, outcome.get((topic, result.partition))) for result in results])
                for topic, results in topics
            ]
            self._answer(request, final, failed=True)

        lookup = self._lookup
        operation = DelayedProduce(due_ms, lookup.replicas, waits, lookup.missing, answer)
        self._purgatory.try_complete_else_watch(operation, list(waits))

    def _answer(self, request: Request, topics: Answers, *, failed: bool) -> None:
        nodes: dict[int, NodeEndpoint] = {}
        if failed and request.api_version >= HINTS_FROM:
            topics = [
                (topic, [with_leader(self._lookup, request.listener, topic, each, nodes) for each in results])
                for topic, results in topics
            ]
        response = ProduceResponse(topics, 0, tuple(nodes.values()))
        request.respond([encode_produce_response(request.api_version, response)])


def with_leader(
    lookup: PartitionLookup,
    listener: str,
    topic: str,
    result: PartitionProduced,
    nodes: dict[int, NodeEndpoint],
) -> PartitionProduced:
    """The result with the present leader, if it is another broker's; its address is added to `nodes`."""
    if result.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return result
    key = topic, result.partition
    hint, endpoint = lookup.leader(key, ErrorCode.NOT_LEADER_OR_FOLLOWER, listener)
    if endpoint is not None:
        nodes[endpoint.node_id] = endpoint
    return result if hint == NO_HINT else result._replace(current_leader=hint)


def _denied(
    access: Access, request: Request, produce: ProduceRequest
) -> Mapping[PartitionKey, PartitionProduced]:
    """The answers for partitions of topics to which the client may not write."""
    topics = [topic for topic, partitions in produce.topics for _ in partitions]
    allowed = access.allowed(request, AclOperation.WRITE, AclResourceType.TOPIC, topics)
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return {
        (topic, index): PartitionProduced(index, error)
        for topic, partitions in produce.topics
        if topic not in allowed
        for index, _ in partitions
    }


def _error_everywhere(
    request: Request, produce: ProduceRequest, error: ErrorCode, what: str | None = None
) -> list[bytes]:
    """An answer with the same error for every partition; each partition occurs once."""
    named: dict[str, dict[int, PartitionProduced]] = {}
    for topic, partitions in produce.topics:
        for index, _ in partitions:
            named.setdefault(topic, {})[index] = PartitionProduced(index, error, error_message=what)
    topics = [(topic, list(results.values())) for topic, results in named.items()]
    return [encode_produce_response(request.api_version, ProduceResponse(topics))]


def _count_refusal(stats: TopicStats, error: int, records: Records) -> None:
    """Count a refusal. Like Kafka, count it as failed only if its cause is not a moved leader or a limit."""
    if error in _TOO_LARGE:
        stats.bytes_rejected += 0 if records is None else len(records)
    if error not in _BARE:
        stats.failed_produces += 1


def _after_wait(result: PartitionProduced, wait: PartitionWait | None) -> PartitionProduced:
    """The result after the wait. Records that were written keep their offsets, also if replication failed."""
    if wait is None or wait.error is ErrorCode.NONE:
        return result
    return result._replace(error_code=wait.error)


def _refused(partition: int, error: ErrorCode) -> tuple[PartitionProduced, int]:
    return PartitionProduced(partition, error), 0


def _refusal(partition: int, refused: AppendError, replica: Partition) -> PartitionProduced:
    error = ErrorCode.__members__.get(refused.error, ErrorCode.UNKNOWN_SERVER_ERROR)
    if error is ErrorCode.UNKNOWN_SERVER_ERROR or isinstance(refused, OwnLimitError):
        _log.warning("%s: records are refused with %s: %s", replica.topic_partition, error.name, refused)
    start = -1 if error in _BARE else replica.log.log_start_offset
    return PartitionProduced(partition, error, -1, -1, start, refused.record_errors, refused.what)
