"""Where a broker's producer ids come from: blocks that the controller allocates, or that the broker writes
to the tree itself.

Rules: Kafka's `ProducerIdManager`, KIP-730. Since inter.broker.protocol.version 3.0 a broker asks the
controller (AllocateProducerIds).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from klog.config.broker import BrokerConfig
from klog.config.kafka_versions import is_before
from klog.formats.errors import KlogError
from klog.metadata.errors import MetadataError
from klog.metadata.producer_ids import (
    AskForBlock,
    OnBlock,
    ProducerIds,
    allocate_producer_ids,
    allocating,
)
from klog.metadata.store import MetadataStore
from klog.metadata.values import ProducerIdBlock
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.messages import build, request_class
from klog.server.peers.controller_channel import ToController
from klog.server.peers.registration import Registration

_BY_CONTROLLER_FROM: Final = "3.0"


def open_producer_ids(
    config: BrokerConfig,
    broker_id: int,
    registration: Registration,
    store: MetadataStore,
    to_controller: ToController,
) -> ProducerIds:
    """The producer ids of a broker."""
    from_tree = partial(allocate_producer_ids, store, broker_id)

    def run(task: Callable[[], None]) -> None:
        threading.Thread(target=task, name="klog-producer-ids", daemon=True).start()

    if not config.text("zookeeper.connect"):
        return ProducerIds(allocating(from_tree))  # the embedded store is always there
    # ZooKeeper or the controller may be gone, and requests of others must not wait for them.
    if is_before(config.text("inter.broker.protocol.version") or "", _BY_CONTROLLER_FROM):
        return ProducerIds(allocating(from_tree, run))
    timeout_ms = config.number("request.timeout.ms")
    return ProducerIds(from_controller(to_controller, broker_id, lambda: registration.epoch, timeout_ms))


def from_controller(
    to_controller: ToController, broker_id: int, broker_epoch: Callable[[], int], timeout_ms: int
) -> AskForBlock:
    """Asks the controller for blocks."""

    def build_request(version: int) -> Entity:
        asked = request_class(ApiKey.ALLOCATE_PRODUCER_IDS, version)
        return build(asked, broker_id=broker_id, broker_epoch=broker_epoch())

    def ask(on_block: OnBlock) -> None:
        def answered(answer: Entity | KlogError) -> None:
            on_block(_block_of(answer, broker_id))

        to_controller.send(ApiKey.ALLOCATE_PRODUCER_IDS, build_request, answered, timeout_ms=timeout_ms)

    return ask


def _block_of(answer: Entity | KlogError, broker_id: int) -> ProducerIdBlock | MetadataError:
    if isinstance(answer, KlogError):
        return MetadataError(f"the controller allocates no producer ids: {answer}")
    error = error_code(answer.error_code)
    if error is not ErrorCode.NONE:
        return MetadataError(f"the controller allocates no producer ids: {error.name}")
    first, count = answer.producer_id_start, answer.producer_id_len
    if first < 0 or count <= 0:
        return MetadataError(f"the controller allocated {count} producer ids from {first} on")
    return ProducerIdBlock(broker_id, first, first + count - 1)
