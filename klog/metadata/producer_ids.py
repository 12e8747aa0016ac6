"""Allocates blocks of producer ids: a block belongs to the broker that writes it to the tree first.

Kafka's controller allocates them (AllocateProducerIds); before 2.7 each broker took its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from klog.metadata import paths, znodes
from klog.metadata.errors import BadVersionError, MetadataError
from klog.metadata.retried_writes import write
from klog.metadata.store import MetadataStore, SetData
from klog.metadata.values import ProducerIdBlock

_log = logging.getLogger(__name__)

BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1
_WAIT_S = 0.1


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


OnBlock = Callable[[ProducerIdBlock | MetadataError], object]
"""Is given a block, or why there is none. Called once, from any thread."""

AskForBlock = Callable[[OnBlock], object]


def allocating(
    allocate: Callable[[], ProducerIdBlock], run: Callable[[Callable[[], None]], object] = lambda task: task()
) -> AskForBlock:
    """Asks by a call that waits for the block, and may raise `MetadataError`.

    `run` runs the call, at once or on another thread: while ZooKeeper cannot be reached it takes long.
    """

    def ask(on_block: OnBlock) -> None:
        def task() -> None:
            outcome: ProducerIdBlock | MetadataError = MetadataError("no producer id is ready yet")
            try:
                outcome = allocate()
            except MetadataError as failed:
                outcome = failed
            finally:
                on_block(outcome)

        run(task)

    return ask


class ProducerIds:
    """The next producer id, from the block in hand or a new one. Safe for threads.

    A new block is asked for when a tenth of the block is left. What is left of a block is lost when the
    broker stops. The first who need the block wait for `wait_s` at most.
    """

    def __init__(self, ask: AskForBlock, *, wait_s: float = _WAIT_S) -> None:
        self._ask = ask
        self._wait_s = wait_s
        self._changed = threading.Condition()
        self._next = 0
        self._last = -1
        self._low = 0
        self._following: ProducerIdBlock | None = None
        self._is_allocating = False
        self._is_late = False
        self._error: MetadataError | None = None

    def next_id(self) -> int:
        """An id that nobody was given before. Raises `MetadataError` if none is ready."""
        with self._changed:
            left = self._last + 1 - self._next
            is_needed = self._following is None and left <= self._low and not self._is_allocating
            self._is_allocating = self._is_allocating or is_needed
        if is_needed:
            self._ask(self._allocated)
        with self._changed:
            if self._next > self._last and self._following is None and not self._is_late:
                # If it takes longer, nobody else waits until the outcome is known.
                self._is_late = not self._changed.wait_for(lambda: not self._is_allocating, self._wait_s)
            return self._take()

    def _take(self) -> int:
        if self._next > self._last:
            block, self._following = self._following, None
            if block is None:
                raise self._error or MetadataError("no producer id is ready yet")
            self._next, self._last = block.first, block.last
            self._low = (block.last + 1 - block.first) // 10
        self._next += 1
        return self._next - 1

    def _allocated(self, outcome: ProducerIdBlock | MetadataError) -> None:
        block = error = None
        if isinstance(outcome, ProducerIdBlock):
            block = outcome
        else:
            _log.info("no block of producer ids could be allocated: %s", outcome)
            error = outcome
        with self._changed:
            self._following, self._error = block, error
            self._is_allocating = self._is_late = False
            self._changed.notify_all()
