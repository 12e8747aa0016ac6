"""Asks a broker for the identity of an idempotent producer: an id and an epoch (KIP-98)."""

from __future__ import annotations

from typing import Final, NamedTuple

from klog.client.connection import Connection
from klog.client.errors import RefusedError
from klog.client.requests import ask
from klog.formats.constants import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode


class ProducerId(NamedTuple):
    """Identifies a producer; a later user of the same id has a higher epoch."""

    producer_id: int
    epoch: int


NO_PRODUCER: Final = ProducerId(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def new_producer_id(connection: Connection) -> ProducerId:
    """An id for a producer without transactions. Raises RefusedError, ChannelError, UnsupportedApiError."""
    response = ask(
        connection,
        ApiKey.INIT_PRODUCER_ID,
        transactional_id=None,
        transaction_timeout=(1 << 31) - 1,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
    )
    if int(response.error_code) != ErrorCode.NONE:
        right = "IdempotentWrite, or Write on a topic"
        raise RefusedError("asking for a producer id", response.error_code, right=right)
    return ProducerId(int(response.producer_id), int(response.producer_epoch))
