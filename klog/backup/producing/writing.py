"""Writes the batches of one partition, one after the other, each of them once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from klog.backup.producing.batches import number
from klog.client.cluster import Cluster
from klog.client.errors import ClientError, RefusedError
from klog.client.producer import ALL_IN_SYNC, produce
from klog.client.producer_id import ProducerId, new_producer_id
from klog.formats.names import TopicPartition
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import ChannelError
from klog.protocol.produce_request import ProduceRequest
from klog.protocol.produce_response import PartitionProduced

NO_PARTITION: Final = (1 << 31) - 1
"""A number that no partition has: what is asked about it needs the rights, and changes nothing."""

UNKNOWN_OFFSET: Final = -1
"""What a broker answers if a batch was there for long."""

_CURE: Final = "nothing else may write to a topic that is restored: delete the topic, and restore it again"


def producer_id(cluster: Cluster) -> ProducerId:
    """A new id; waits for a cluster that has just started. Raises `ClientError`, `ChannelError`."""
    retry = cluster.new_retry()
    while True:
        try:
            return new_producer_id(cluster.any_connection())
        except (ClientError, ChannelError) as error:
            cluster.pause_and_refresh(error, (), retry)


def require_right_to_write(cluster: Cluster, topics: Sequence[str]) -> None:
    """Ask with a batch for a partition that no topic has: brokers look for the right first, also for topics
    that do not exist. Kafka before 2.0 reads no request without a batch. Raises `RefusedError`,
    `ClientError`, `ChannelError`.
    """
    if not topics:
        return
    batch = build_batch([RecordData(0, 0, None, None)], BatchFields())
    nowhere: list[tuple[int, memoryview | None]] = [(NO_PARTITION, memoryview(batch))]
    timeout_ms = cluster.timeout_ms
    request = ProduceRequest(None, ALL_IN_SYNC, timeout_ms, [(topic, nowhere) for topic in topics])
    for topic, answers in produce(cluster.any_connection(), request, 2 * timeout_ms):
        error = RefusedError(f"writing to topic {topic}", answers[0].error_code, right="Write")
        if error.is_of_rights:
            raise error


class PartitionProducer:
    """Writes to a partition in which `written` records are, all of this producer.

    The number of records is the sequence of the next batch and its offset, so a batch that was written before
    a connection broke, or before a restore was killed, is not written again.
    """

    def __init__(
        self, cluster: Cluster, partition: TopicPartition, producer: ProducerId, written: int
    ) -> None:
        self._cluster = cluster
        self._partition = partition
        self._producer = producer
        self.written = written

    def write(self, batch: bytearray, records: int) -> None:
        """Write a batch, and wait until all in-sync replicas have it.

        Raises `OthersWriteError` if it does not stand where it should, `ClientError`, `ChannelError`.
        """
        number(batch, *self._producer, self.written)
        base_offset = self._base_offset(batch)
        if base_offset not in (UNKNOWN_OFFSET, self.written):
            raise OthersWriteError(
                f"{self._partition}: records were written at offset {base_offset}, not at {self.written}",
                cure=_CURE,
            )
        self.written += records

    def _base_offset(self, batch: bytearray) -> int:
        retry = self._cluster.new_retry()
        while True:
            try:
                answer = self._ask(batch)
                if answer.error_code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    raise self._refused(answer)
                return answer.base_offset
            except (ClientError, ChannelError) as error:
                self._cluster.pause_and_refresh(error, [self._partition.topic], retry)

    def _ask(self, batch: bytearray) -> PartitionProduced:
        topic, partition = self._partition
        leader_id = self._cluster.leader(self._partition)
        connection = self._cluster.leader_connection(leader_id, [self._partition])
        timeout_ms = self._cluster.timeout_ms
        request = ProduceRequest(None, ALL_IN_SYNC, timeout_ms, [(topic, [(partition, memoryview(batch))])])
        ((_, (answer,)),) = produce(connection, request, 2 * timeout_ms)
        return answer

    def _refused(self, answer: PartitionProduced) -> RefusedError:
        code = error_code(answer.error_code)
        cure = _CURE if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER else None
        what = f"writing to {self._partition}"
        return RefusedError(what, code, message=answer.error_message, cure=cure, right="Write")


class OthersWriteError(ClientError):
    """A partition has records that this restore did not write."""
