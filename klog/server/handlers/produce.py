"""Produce: records into partitions that this broker leads, acknowledged as the producer asks.

Rules: Kafka's `KafkaApis.handleProduceRequest`, `ReplicaManager.appendRecords` and `ProduceRequest.
validateRecords`; KIP-951 (the new leader along with an error). acks=0 gets no answer (an error closes the
connection, so that the producer looks for the leader again), acks=1 is answered after the local write,
acks=-1 when all in-sync replicas have the records. A disk that fails is the log's own to report.

Transactional records are refused as by a Kafka broker that cannot reach a transaction coordinator, for there
is none yet: nobody could end the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from klog.formats.columns import CODEC_MASK, TRANSACTIONAL_BIT
from klog.formats.compression import ZSTD
from klog.formats.constants import BATCH_CRC_FROM, MAGIC_POSITION
from klog.formats.errors import StorageError
from klog.protocol.error_codes import ErrorCode
from klog.protocol.leader_hints import NO_LEADER, NodeEndpoint
from klog.protocol.produce_request import ProduceRequest, Records, decode_produce_request
from klog.protocol.produce_response import PartitionProduced, ProduceResponse, encode_produce_response
from klog.replication.acknowledging import Awaited, DelayedProduce
from klog.replication.partition import Partition, PartitionError
from klog.replication.purgatory import Purgatory
from klog.server.handlers.whereabouts import Key, Whereabouts
from klog.server.network.request import Request
from klog.server.traffic import TopicTraffic, Traffic
from klog.storage.log.append_values import AppendError

ALL_IN_SYNC: Final = -1
INTERNAL_TOPICS: Final = frozenset(("__consumer_offsets", "__transaction_state"))
# The client id that Kafka's own brokers use towards each other; only it may write to internal topics.
ADMIN_CLIENT_ID: Final = "__admin_client"
_MAGIC_2_FROM: Final = 3
_ZSTD_FROM: Final = 7
_HINTS_FROM: Final = 10
_ATTRIBUTES_LOW_BYTE: Final = BATCH_CRC_FROM + 1
_NO_ERROR: Final = int(ErrorCode.NONE)

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

Topics = list[tuple[str, list[PartitionProduced]]]


class ProduceHandler:
    """Answers Produce requests. `clock_ms` stamps records, `timer_ms` is the clock of the purgatory."""

    def __init__(
        self,
        whereabouts: Whereabouts,
        purgatory: Purgatory[DelayedProduce],
        clock_ms: Callable[[], int],
        timer_ms: Callable[[], int],
        traffic: Traffic,
    ) -> None:
        self._whereabouts = whereabouts
        self._purgatory = purgatory
        self._clock_ms = clock_ms
        self._timer_ms = timer_ms
        self._traffic = traffic.topics

    def handle(self, request: Request) -> None:
        """Write what the request holds, and answer it now or later."""
        version = request.api_version
        produce = decode_produce_request(version, request.body)
        now_ms = self._clock_ms()
        awaited: dict[Key, Awaited] = {}
        topics: Topics = []
        failed = False
        for topic, partitions in produce.topics:
            internal = topic in INTERNAL_TOPICS and request.client_id != ADMIN_CLIENT_ID
            results: list[PartitionProduced] = []
            for index, records in partitions:
                if internal:
                    result, required_offset = _refused(index, ErrorCode.INVALID_TOPIC_EXCEPTION)
                else:
                    result, required_offset = self._append((topic, index), records, produce, version, now_ms)
                results.append(result)
                if result.error_code != _NO_ERROR:
                    failed = True
                elif required_offset:
                    awaited[topic, index] = Awaited(required_offset)
            topics.append((topic, results))
        if produce.acks == 0:
            if failed:
                request.close_connection()
            else:
                request.respond(None)
        elif awaited:
            self._wait(request, topics, awaited, self._timer_ms() + produce.timeout_ms)
        else:
            self._answer(request, topics, failed=failed)

    def failed(self, request: Request, error: ErrorCode) -> list[bytes] | None:
        """What a request is answered that could not be handled; None where nothing is to be answered."""
        produce = decode_produce_request(request.api_version, request.body)
        if produce.acks == 0:
            return None
        topics = [
            (topic, [PartitionProduced(index, error) for index, _ in partitions])
            for topic, partitions in produce.topics
        ]
        return [encode_produce_response(request.api_version, ProduceResponse(topics))]

    # -- writing ---------------------------------------------------------------------------------------------

    def _append(
        self, key: Key, records: Records, produce: ProduceRequest, version: int, now_ms: int
    ) -> tuple[PartitionProduced, int]:
        """Write to one partition; its result, and the high watermark that it must wait for (0: none)."""
        index, acks = key[1], produce.acks
        whereabouts = self._whereabouts
        if not whereabouts.known(key):
            return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        traffic = self._traffic[key[0]]
        traffic.produces += 1
        partition = whereabouts.replicas.partitions.get(key)
        try:
            data = _allowed(records, version, produce.transactional_id)
            if not ALL_IN_SYNC <= acks <= 1:
                return _refused(index, ErrorCode.INVALID_REQUIRED_ACKS)
            if partition is None:
                return _refused(index, whereabouts.missing(key))
            info, moved = partition.append(data, acks, now_ms)
        except AppendError as refused:
            refusal = _refusal(index, refused, partition)
            _count_refusal(traffic, refusal.error_code, records)
            return refusal, 0
        except PartitionError as refused:
            _count_refusal(traffic, refused.error, records)
            start = -1 if refused.error in _BARE or partition is None else partition.log.log_start_offset
            return PartitionProduced(index, refused.error, -1, -1, start, (), refused.what), 0
        except (OSError, StorageError):
            return _refused(index, ErrorCode.KAFKA_STORAGE_ERROR)
        if not info.duplicate:
            traffic.messages_in += info.last_offset - info.first_offset + 1
            traffic.bytes_in += info.size_bytes
            whereabouts.replicas.appended(key, high_watermark_moved=moved)
        required_offset = info.last_offset + 1
        if acks != ALL_IN_SYNC or partition.log.high_watermark >= required_offset:
            required_offset = 0
        produced = PartitionProduced(
            index, _NO_ERROR, info.first_offset, info.log_append_time_ms, info.log_start_offset
        )
        return produced, required_offset

    # -- answering -------------------------------------------------------------------------------------------

    def _wait(self, request: Request, topics: Topics, awaited: Mapping[Key, Awaited], due_ms: int) -> None:
        def answer(outcome: Mapping[Key, Awaited]) -> None:
            final = [
                (topic, [_after_wait(result, outcome.get((topic, result.partition))) for result in results])
                for topic, results in topics
            ]
            self._answer(request, final, failed=True)

        whereabouts = self._whereabouts
        operation = DelayedProduce(due_ms, whereabouts.replicas, awaited, whereabouts.missing, answer)
        self._purgatory.try_complete_else_watch(operation, list(awaited))

    def _answer(self, request: Request, topics: Topics, *, failed: bool) -> None:
        nodes: dict[int, NodeEndpoint] = {}
        if failed and request.api_version >= _HINTS_FROM:
            topics = [
                (topic, [self._with_leader(request, topic, result, nodes) for result in results])
                for topic, results in topics
            ]
        response = ProduceResponse(topics, 0, tuple(nodes.values()))
        request.respond([encode_produce_response(request.api_version, response)])

    def _with_leader(
        self, request: Request, topic: str, result: PartitionProduced, nodes: dict[int, NodeEndpoint]
    ) -> PartitionProduced:
        if result.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return result
        key = topic, result.partition
        hint, endpoint = self._whereabouts.leader(key, ErrorCode.NOT_LEADER_OR_FOLLOWER, request.listener)
        if endpoint is not None:
            nodes[endpoint.node_id] = endpoint
        return result if hint == NO_LEADER else result._replace(current_leader=hint)


def _count_refusal(traffic: TopicTraffic, error: int, records: Records) -> None:
    """Kafka counts as failed what is not the everyday business of metadata and limits."""
    if error in _TOO_LARGE:
        traffic.bytes_rejected += 0 if records is None else len(records)
    if error not in _BARE:
        traffic.failed_produces += 1


def _after_wait(result: PartitionProduced, awaited: Awaited | None) -> PartitionProduced:
    """The result when the waiting is over. What was written keeps its offsets, whatever came of the rest."""
    if awaited is None or awaited.error is ErrorCode.NONE:
        return result
    return result._replace(error_code=awaited.error)


def _allowed(records: Records, version: int, transactional_id: str | None) -> memoryview:
    """What this version of the request may carry. Raises `AppendError`, `PartitionError`."""
    if records is None or len(records) <= MAGIC_POSITION:
        if version >= _MAGIC_2_FROM:
            raise AppendError("INVALID_RECORD", f"Produce {version} needs a record batch for every partition")
        return memoryview(bytearray()) if records is None else records
    magic = records[MAGIC_POSITION]
    if version >= _MAGIC_2_FROM and magic != 2:
        raise AppendError("INVALID_RECORD", f"Produce {version} takes batches of magic 2 only, not {magic}")
    if magic >= 2 and len(records) > _ATTRIBUTES_LOW_BYTE:
        attributes = records[_ATTRIBUTES_LOW_BYTE]
        if attributes & CODEC_MASK == ZSTD and _MAGIC_2_FROM <= version < _ZSTD_FROM:
            raise AppendError("UNSUPPORTED_COMPRESSION_TYPE", f"Produce {version} knows no zstd")
        if attributes & TRANSACTIONAL_BIT:
            raise _no_transaction(transactional_id)
    return records


def _no_transaction(transactional_id: str | None) -> PartitionError:
    if transactional_id is None:
        return PartitionError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    # Kafka translates COORDINATOR_NOT_AVAILABLE so: producers retry it without looking for new metadata.
    return PartitionError(
        ErrorCode.NOT_ENOUGH_REPLICAS,
        "no transaction coordinator is available to say whether the partition is in the transaction",
    )


def _refused(partition: int, error: ErrorCode) -> tuple[PartitionProduced, int]:
    return PartitionProduced(partition, error), 0


def _refusal(partition: int, refused: AppendError, replica: Partition | None) -> PartitionProduced:
    error = ErrorCode.__members__.get(refused.error, ErrorCode.UNKNOWN_SERVER_ERROR)
    start = -1 if replica is None or error in _BARE else replica.log.log_start_offset
    return PartitionProduced(partition, error, -1, -1, start, refused.record_errors, refused.what)
