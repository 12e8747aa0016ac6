"""Sends one Produce request to one broker and reads its answer (the protocol guide on Produce)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from klog.client.connection import Connection
from klog.client.errors import ClientError
from klog.protocol.apis import ApiKey
from klog.protocol.produce_request import ProduceRequest, encode_produce_request
from klog.protocol.produce_response import PartitionProduced, decode_produce_response

_MAGIC_2_FROM: Final = 3


def produce(
    connection: Connection, request: ProduceRequest, timeout_ms: int
) -> Sequence[tuple[str, Sequence[PartitionProduced]]]:
    """Send batches of magic 2 and wait for the outcome of each partition, topics by name.

    With acks=0 brokers do not answer; every partition then counts as written, at an unknown offset.
    `timeout_ms` limits the answer. Raises ChannelError, UnsupportedApiError, and ClientError if the broker
    knows only older batches.
    """
    version = connection.version_of(ApiKey.PRODUCE)
    if version < _MAGIC_2_FROM:
        raise ClientError(f"{connection} takes no records of magic 2", cure="it is older than Kafka 0.11")
    body = encode_produce_request(version, request)
    if request.acks == 0:
        connection.post(ApiKey.PRODUCE, version, body)
        return [(name, [PartitionProduced(number) for number, _ in parts]) for name, parts in request.topics]
    return connection.request(ApiKey.PRODUCE, version, body, decode_produce_response, timeout_ms).topics
