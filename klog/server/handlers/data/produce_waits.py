"""Runs of Produce frames with acks=all whose answers wait until all in-sync replicas have the records.

The effect is that of `produce` for each frame: the answers of a run wait together, because its records are
appended together. The connection handles its next request after them, as after every request.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from klog.formats.names import PartitionKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.leader_hints import NodeEndpoint
from klog.protocol.primitives import INT32
from klog.protocol.produce_request import FLEXIBLE_FROM
from klog.protocol.produce_response import PartitionProduced, ProduceResponse, encode_produce_response
from klog.replication.acknowledging import DelayedProduce
from klog.replication.purgatory import Purgatory
from klog.replication.replica_waits import PartitionWait
from klog.server.counters.request_times import ApiCounter
from klog.server.handlers.data.produce import HINTS_FROM, with_leader
from klog.server.handlers.partition_lookup import PartitionLookup
from klog.server.network.connection import Connection
from klog.server.network.request import LateAnswers

_CLIENT_SIZE: Final = struct.Struct(">h")
_CLIENT_SIZE_AT: Final = 12  # after size, key, version and correlation id
# After the client id: empty tags and the size of the transactional id, or the latter as two bytes; acks.
_TIMEOUT_AFTER: Final = 4
_NUMBERS: Final = struct.Struct(">ihqqq")  # partition, error, base offset, append time, log start offset


class ProduceWaits:
    """Lets runs wait. `timer_ms` is the purgatory's clock; `clock_ns` measures times for `counter`."""

    def __init__(
        self,
        lookup: PartitionLookup,
        purgatory: Purgatory,
        timer_ms: Callable[[], int],
        counter: ApiCounter,
        clock_ns: Callable[[], int],
    ) -> None:
        self.lookup = lookup
        self.purgatory = purgatory
        self.timer_ms = timer_ms
        self.counter = counter
        self.clock_ns = clock_ns

    def wait(
        self,
        connection: Connection,
        key: PartitionKey,
        required_offset: int,
        timeout_ms: int,
        version: int,
        frames: int,
        answers: bytes,
        numbers_at: int,
        start_ns: int,
    ) -> None:
        """Send the answers when the high watermark has reached an offset, or others that say why it has not.

        `answers` are those of `frames` requests of that version, of equal size; `numbers_at` is where the
        numbers of a partition stand in each.
        """
        late = LateAnswers(connection)
        handled_ns = self.clock_ns()

        def replicated(outcome: Mapping[PartitionKey, PartitionWait]) -> None:
            error = outcome[key].error
            sent = answers
            if error is not ErrorCode.NONE:
                size = len(answers) // frames
                listener = connection.listener.name
                sent = b"".join(self._failed(answers, size, numbers_at, version, key, error, listener))
            late.respond((sent,))

        def answered() -> None:
            self.counter.answered_later(late, frames, start_ns, handled_ns, self.clock_ns())

        late.on_answered = answered
        connection.in_flight = late
        lookup = self.lookup
        operation = DelayedProduce(
            self.timer_ms() + timeout_ms,
            lookup.replicas,
            {key: PartitionWait(required_offset)},
            lookup.missing,
            replicated,
        )
        self.purgatory.try_complete_else_watch(operation, (key,))

    def _failed(
        self,
        answers: bytes,
        size: int,
        numbers_at: int,
        version: int,
        key: PartitionKey,
        error: ErrorCode,
        listener: str,
    ) -> Iterator[bytes]:
        """The answers with an error; what was written keeps its offsets."""
        tags = b"\0" if version >= FLEXIBLE_FROM else b""
        for start in range(0, len(answers), size):
            index, _, offset, append_time_ms, log_start = _NUMBERS.unpack_from(answers, start + numbers_at)
            nodes: dict[int, NodeEndpoint] = {}
            result = PartitionProduced(index, error, offset, append_time_ms, log_start)
            if version >= HINTS_FROM:
                result = with_leader(self.lookup, listener, key[0], result, nodes)
            response = ProduceResponse([(key[0], [result])], 0, tuple(nodes.values()))
            correlation_id = answers[start + INT32.size : start + 2 * INT32.size]
            body = correlation_id + tags + encode_produce_response(version, response)
            yield INT32.pack(len(body)) + body


def common_timeout_ms(buffer: bytearray, start: int, end: int, id_bytes: int = 0) -> int | None:
    """The timeout of the usual Produce frames between two positions; None if they have several.

    `id_bytes` is the size of their transactional id.
    """
    found: int | None = None
    while start < end:
        client_bytes = max(_CLIENT_SIZE.unpack_from(buffer, start + _CLIENT_SIZE_AT)[0], 0)
        at = start + _CLIENT_SIZE_AT + _CLIENT_SIZE.size + client_bytes + id_bytes + _TIMEOUT_AFTER
        timeout_ms: int = INT32.unpack_from(buffer, at)[0]
        if found not in (None, timeout_ms):
            return None
        found = timeout_ms
        start += INT32.size + INT32.unpack_from(buffer, start)[0]
    return found
