"""Which of two replicas of a partition Kafka would keep, and where the other one would truncate its log.

Rules: KIP-101, KIP-279 and Kafka's `ReplicaFetcherThread`. A follower truncates its log to the end of the
last leader epoch that it and its leader know. Without leader epochs it truncates to its high watermark. A
follower that ends before its leader's log start offset deletes its log and begins there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from klog.formats.checkpoints import EpochEntry
from klog.replicas.divergence import common_end
from klog.replicas.replica_contents import ReplicaContents
from klog.replicas.replicas import rank, reason_chosen


@dataclass(frozen=True, slots=True)
class KeptReplica:
    """The choice between replicas A and B.

    `name` is None if Kafka would keep either of them, or the files do not say; `reason` says why.
    `last_common_epoch` is None if there is none. `truncation_offset` is the offset to which the other one,
    or the one that becomes the follower, would truncate its log; None if that is not known.
    """

    name: str | None
    reason: str
    last_common_epoch: int | None
    truncation_offset: int | None = None


def kept_replica(
    a: ReplicaContents, b: ReplicaContents, epochs_a: Sequence[EpochEntry], epochs_b: Sequence[EpochEntry]
) -> KeptReplica:
    """Choose between replicas with these leader epochs, as an export does it."""
    common = {entry.epoch for entry in epochs_a} & {entry.epoch for entry in epochs_b}
    last_common = max(common, default=None)
    ids = a.replica.topic_id, b.replica.topic_id
    if None not in ids and ids[0] != ids[1]:
        topics = a.replica.partition.topic, b.replica.partition.topic
        named = "of the same name" if topics[0] == topics[1] else f"({topics[0]} and {topics[1]})"
        reason = f"they are two topics {named}, with the topic ids {ids[0]} and {ids[1]}"
        return KeptReplica(None, reason, last_common)
    if a.replica.partial or b.replica.partial:
        return KeptReplica(None, "single segments do not say it", last_common)
    a_is_kept = rank(a) > rank(b)
    kept, other = (a, b) if a_is_kept else (b, a)
    if epochs_a and epochs_b:
        ours, theirs = (epochs_a, epochs_b) if a_is_kept else (epochs_b, epochs_a)
        offset: int | None = min(common_end(ours, theirs), kept.end_offset, other.end_offset)
    else:
        offset = other.replica.high_watermark
        offset = None if offset is None else min(offset, other.end_offset)
    if rank(a)[:2] == rank(b)[:2]:
        reason = "leader epoch and log end are the same, so Kafka keeps the one that becomes the leader"
        return KeptReplica(None, reason, last_common, offset)
    return KeptReplica("A" if a_is_kept else "B", reason_chosen(kept, other), last_common, offset)
