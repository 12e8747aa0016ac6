"""Produce: records into partitions that this broker leads, acknowledged as the producer asks.

Rules: Kafka's `KafkaApis.handleProduceRequest` and `ReplicaManager.appendRecords`. acks=0 gets no answer (an
error closes the connection, so that the producer looks for the leader again), acks=1 is answered after the
local write, acks=-1 when all in-sync replicas have the records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from klog.formats.columns import CODEC_MASK
from klog.formats.compression import ZSTD
from klog.formats.constants import BATCH_CRC_FROM, MAGIC_POSITION
from klog.protocol.error_codes import ErrorCode
from klog.protocol.produce_request import Records, decode_produce_request
from klog.protocol.produce_response import PartitionProduced, ProduceResponse, encode_produce_response
from klog.replication.acknowledging import Awaited, DelayedProduce
from klog.replication.partition import PartitionError
from klog.replication.purgatory import Purgatory
from klog.replication.replica_manager import ReplicaManager
from klog.server.network.request import Request
from klog.storage.log.validation import AppendError

logger = logging.getLogger(__name__)

ALL_IN_SYNC: Final = -1
_MAGIC_2_FROM: Final = 3
_ZSTD_FROM: Final = 7
_ATTRIBUTES_LOW_BYTE: Final = BATCH_CRC_FROM + 1
_NOTHING_FAILED: Final = int(ErrorCode.NONE)

Key = tuple[str, int]


class ProduceHandler:
    """Answers Produce requests."""

    def __init__(
        self,
        replicas: ReplicaManager,
        purgatory: Purgatory[DelayedProduce],
        clock_ms: Callable[[], int],
        known: Callable[[Key], bool],
        storage_failed: Callable[[Key, OSError], None],
    ) -> None:
        self._replicas = replicas
        self._purgatory = purgatory
        self._clock_ms = clock_ms
        self._known = known
        self._storage_failed = storage_failed

    def handle(self, request: Request) -> None:
        """Write what the request holds, and answer it now or later."""
        version = request.api_version
        produce = decode_produce_request(version, request.body)
        acks = produce.acks
        now_ms = self._clock_ms()
        awaited: dict[Key, Awaited] = {}
        topics: list[tuple[str, list[PartitionProduced]]] = []
        failed = False
        for topic, partitions in produce.topics:
            results: list[PartitionProduced] = []
            for index, records in partitions:
                result, required_offset = self._append((topic, index), records, version, acks, now_ms)
                results.append(result)
                if result.error_code != _NOTHING_FAILED:
                    failed = True
                elif required_offset:
                    awaited[topic, index] = Awaited(required_offset)
            topics.append((topic, results))
        if acks == 0:
            if failed:
                request.close_connection()
            else:
                request.respond(None)
        elif awaited:
            self._wait(request, topics, awaited, now_ms + produce.timeout_ms)
        else:
            request.respond([encode_produce_response(version, ProduceResponse(topics))])

    def _append(
        self, key: Key, records: Records, version: int, acks: int, now_ms: int
    ) -> tuple[PartitionProduced, int]:
        """Write to one partition; its result, and the high watermark that it must wait for (0: none)."""
        if not -1 <= acks <= 1:
            return PartitionProduced(key[1], ErrorCode.INVALID_REQUIRED_ACKS), 0
        replicas = self._replicas
        partition = replicas.partitions.get(key)
        if partition is None:
            return PartitionProduced(key[1], replicas.missing(key, self._known)), 0
        try:
            data = _allowed(records, version)
            info, moved = partition.append(data, acks, now_ms)
        except AppendError as refused:
            return _refusal(key[1], refused), 0
        except PartitionError as refused:
            return PartitionProduced(key[1], refused.error, error_message=refused.what), 0
        except OSError as error:
            self._storage_failed(key, error)
            return PartitionProduced(key[1], ErrorCode.KAFKA_STORAGE_ERROR), 0
        if not info.duplicate:
            replicas.appended(key, high_watermark_moved=moved)
        required_offset = info.last_offset + 1
        if acks != ALL_IN_SYNC or partition.log.high_watermark >= required_offset:
            required_offset = 0
        produced = PartitionProduced(
            key[1], _NOTHING_FAILED, info.first_offset, info.log_append_time_ms, info.log_start_offset
        )
        return produced, required_offset

    def _wait(
        self,
        request: Request,
        topics: list[tuple[str, list[PartitionProduced]]],
        awaited: Mapping[Key, Awaited],
        due_ms: int,
    ) -> None:
        def answer(outcome: Mapping[Key, Awaited]) -> None:
            final = [
                (
                    topic,
                    [
                        result
                        if (topic, result.partition) not in outcome
                        else _after_wait(result, outcome[topic, result.partition].error)
                        for result in results
                    ],
                )
                for topic, results in topics
            ]
            request.respond([encode_produce_response(request.api_version, ProduceResponse(final))])

        operation = DelayedProduce(due_ms, self._replicas, awaited, answer)
        self._purgatory.try_complete_else_watch(operation, list(awaited))


def _after_wait(result: PartitionProduced, error: ErrorCode) -> PartitionProduced:
    return result if error is ErrorCode.NONE else PartitionProduced(result.partition, error)


def _allowed(records: Records, version: int) -> memoryview:
    """What this version of the request may carry. Raises `AppendError`."""
    if records is None or len(records) <= MAGIC_POSITION:
        if version >= _MAGIC_2_FROM:
            raise AppendError("INVALID_RECORD", f"Produce {version} needs a record batch for every partition")
        return memoryview(bytearray()) if records is None else records
    magic = records[MAGIC_POSITION]
    if version >= _MAGIC_2_FROM:
        if magic != 2:
            raise AppendError(
                "INVALID_RECORD", f"Produce {version} takes batches of magic 2 only, not {magic}"
            )
        if (
            version < _ZSTD_FROM
            and len(records) > _ATTRIBUTES_LOW_BYTE
            and records[_ATTRIBUTES_LOW_BYTE] & CODEC_MASK == ZSTD
        ):
            raise AppendError("UNSUPPORTED_COMPRESSION_TYPE", f"Produce {version} knows no zstd")
    elif magic >= 2:
        raise AppendError("INVALID_RECORD", f"Produce {version} takes message sets of magic 0 and 1 only")
    return records


def _refusal(partition: int, refused: AppendError) -> PartitionProduced:
    error = ErrorCode.__members__.get(refused.error, ErrorCode.UNKNOWN_SERVER_ERROR)
    return PartitionProduced(
        partition, error, record_errors=refused.record_errors, error_message=refused.what
    )
