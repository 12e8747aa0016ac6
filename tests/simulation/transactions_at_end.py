"""What must hold of transactions and offsets when all is well again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.coordinator.transactions.coordinator import TRANSACTION_STATE
from klog.formats.constants import NO_PRODUCER_ID
from klog.formats.names import TopicPartition
from klog.storage.log.partition_log import PartitionLog
from tests.simulation.coordinators import INTERNAL
from tests.simulation.history import Committed
from tests.simulation.log_content import Batch, batches_of

if TYPE_CHECKING:
    from tests.simulation.world import World


def undecided(world: World) -> str:
    """A transaction that is not complete; empty if all are."""
    if not world.has_coordinators or _has_lost_transactions(world):
        return ""
    for broker in world.brokers.values():
        missing = broker.coordinators.undecided()
        if missing:
            return missing
    for key, log, model in _led_logs(world):
        if not model.losses and log.last_stable_offset != log.high_watermark:
            stable, high = log.last_stable_offset, log.high_watermark
            return f"{key} has the last stable offset {stable} and the high watermark {high}"
    return ""


def _has_lost_transactions(world: World) -> bool:
    """Whether coordinators may have lost transactions, which nobody ends then, by Kafka's rules."""
    count = world.internal_partitions.get(TRANSACTION_STATE, 0)
    models = (world.model_of(TopicPartition(TRANSACTION_STATE, each)) for each in range(count))
    return any(model is not None and model.losses for model in models)


def _led_logs(world: World) -> list[tuple[TopicPartition, PartitionLog, Committed]]:
    return [
        (TopicPartition(*key), partition.log, world.history.of(str(partition.log.topic_id), key[1], key[0]))
        for broker in world.brokers.values()
        for key, partition in broker.replicas.partitions.items()
        if partition.state.is_leader
        and key[0] not in INTERNAL
        and not world.is_stray(TopicPartition(*key), broker.broker_id)
    ]


def check_transactions(world: World) -> None:
    """All transactions ended as they were acknowledged, in all partitions, and no offset is lost."""
    for key, log, model in _led_logs(world):
        if model.losses:
            continue
        # Below the log start offset a follower keeps what its leader never had, as in Kafka: a leader does
        # not know any more where the epochs of deleted records ended. Nobody reads them.
        batches = [each for each in batches_of(log) if each.offset >= log.log_start_offset]
        if not log.config.compact:
            _check_sequences(key, batches)
        # Backwards: the next marker of its producer says how a transaction has ended.
        commits: dict[int, bool] = {}
        for batch in reversed(batches):
            if batch.commits is not None:
                commits[batch.producer_id] = batch.commits
            elif batch.is_transactional and batch.producer_id in commits:
                world.outcomes.saw(model, batch.record_id, commits[batch.producer_id], "the log at the end")
    for broker in world.brokers.values():
        for producer in world.clients.transactional:
            producer.check_at_end(broker)
        if world.clients.group is not None:
            world.clients.group.check_at_end(broker)


def _check_sequences(key: TopicPartition, batches: list[Batch]) -> None:
    """Each producer's sequence numbers are dense in each of its epochs.

    The first is not 0 if the producer has written to a topic of this name that was deleted, and goes on: a
    log that knows nothing of a producer takes any number (KIP-360).
    """
    following: dict[tuple[int, int], int] = {}
    for batch in batches:
        if batch.producer_id != NO_PRODUCER_ID and batch.commits is None:
            producer = batch.producer_id, batch.producer_epoch
            expected = following.get(producer, batch.sequence)
            assert batch.sequence == expected, (
                f"{key}: sequence {batch.sequence} of {producer} is at {batch.offset}, not {expected}"
            )
            following[producer] = expected + 1
