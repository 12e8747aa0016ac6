"""Allocates blocks of producer ids: a block belongs to the broker that writes it to the tree first.

Kafka's controller allocates them (AllocateProducerIds); before 2.7 each broker took its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from klog.metadata import paths, znodes
from klog.metadata.errors import BadVersionError, MetadataError
from klog.metadata.retried_writes import write
from klog.metadata.store import MetadataStore, SetData
from klog.metadata.values import ProducerIdBlock

BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1


class ProducerIdsExhaustedError(MetadataError):
    """All 2^63 producer ids have been allocated."""


def allocate_producer_ids(store: MetadataStore, broker_id: int, size: int = BLOCK_SIZE) -> ProducerIdBlock:
    """The next block for a broker.

    Ids may be skipped, but are never allocated twice. Raises ProducerIdsExhaustedError.
    """
    while True:
        node = store.get(paths.PRODUCER_ID_BLOCK)
        first = znodes.decode_producer_id_block(node.data).last + 1 if node.data else 0
        if first > MAX_PRODUCER_ID - size:
            raise ProducerIdsExhaustedError("all producer ids have been allocated")
        block = ProducerIdBlock(broker_id, first, first + size - 1)
        data = znodes.encode_producer_id_block(block)
        try:
            write(store, SetData(paths.PRODUCER_ID_BLOCK, data, node.stat.version))
        except BadVersionError:
            continue
        return block


class ProducerIds:
    """The next producer id, from the block in hand or a new one. Safe for threads.

    What is left of a block is lost when the broker stops.
    """

    def __init__(self, allocate: Callable[[], ProducerIdBlock]) -> None:
        """`allocate` writes the next block to the metadata store and may raise `MetadataError`."""
        self._allocate = allocate
        self._lock = threading.Lock()
        self._next = 0
        self._last = -1

    def next_id(self) -> int:
        """An id that nobody was given before. Raises `MetadataError`."""
        with self._lock:
            if self._next > self._last:
                block = self._allocate()
                self._next, self._last = block.first, block.last
            self._next += 1
            return self._next - 1
