"""Assigns replicas of new partitions to brokers by the rules of Kafka's AdminUtils, with and without racks
(KIP-36).

The first replicas of the partitions go round robin over the brokers. The other replicas follow at a shift
that grows by one each time the round robin starts again, so that the followers of one broker's leaders spread
over all other brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from klog.metadata.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
)

Racks = Mapping[int, str | None]
# Returns a random integer from 0 to below its argument.
RandomBelow = Callable[[int], int]


def assign_replicas(
    racks: Racks,
    partitions: int,
    replication_factor: int,
    random_below: RandomBelow,
    *,
    fixed_start: int | None = None,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Replicas for `partitions` new partitions, numbered from `first_partition`.

    `racks` holds every usable broker. If one has a rack, all must have one. Raises
    InvalidPartitionsError, InvalidReplicationFactorError, InvalidReplicaAssignmentError.
    """
    if partitions <= 0:
        raise InvalidPartitionsError("the number of partitions must be larger than 0")
    if replication_factor <= 0:
        raise InvalidReplicationFactorError("the replication factor must be larger than 0")
    if replication_factor > len(racks):
        raise InvalidReplicationFactorError(
            f"replication factor {replication_factor} is larger than the number of brokers, {len(racks)}"
        )
    known = {broker_id: rack for broker_id, rack in racks.items() if rack is not None}
    if known and len(known) < len(racks):
        raise InvalidReplicaAssignmentError(
            "some brokers have a rack and some have none", cure="give every broker a broker.rack"
        )
    brokers = rack_alternated(known) if known else sorted(racks)
    start = random_below(len(brokers)) if fixed_start is None else fixed_start
    shift = random_below(len(brokers)) if fixed_start is None else fixed_start
    assignment = {}
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(brokers) == 0:
            shift += 1
        first = (partition + start) % len(brokers)
        if known:
            assignment[partition] = _rack_aware(brokers, known, replication_factor, first, shift)
        else:
            followers = range(replication_factor - 1)
            indexes = [first, *(_follower_index(first, shift, each, len(brokers)) for each in followers)]
            assignment[partition] = tuple(brokers[index] for index in indexes)
    return assignment


def _follower_index(first: int, shift: int, follower: int, brokers: int) -> int:
    """The index of a follower. It is never `first`, because the shift is taken modulo the other brokers."""
    return (first + 1 + (shift + follower) % (brokers - 1)) % brokers


def _rack_aware(
    brokers: Sequence[int], racks: Mapping[int, str], replication_factor: int, first: int, shift: int
) -> tuple[int, ...]:
    """A rack gets its second replica only when every rack has one, and a broker never gets a second one."""
    rack_count = len(set(racks.values()))
    chosen = [brokers[first]]
    used_racks = {racks[chosen[0]]}
    probe = 0
    while len(chosen) < replication_factor:
        broker = brokers[_follower_index(first, shift * rack_count, probe, len(brokers))]
        probe += 1
        if broker not in chosen and (racks[broker] not in used_racks or len(used_racks) == rack_count):
            chosen.append(broker)
            used_racks.add(racks[broker])
    return tuple(chosen)


def rack_alternated(racks: Mapping[int, str]) -> list[int]:
    """The brokers in turns over the racks: `r1: 0,1 r2: 2 r3: 3,4` gives 0, 2, 3, 1, 4."""
    by_rack: dict[str, list[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id], []).append(broker_id)
    rows = [by_rack[rack] for rack in sorted(by_rack, key=_java_order)]
    longest = max(map(len, rows), default=0)
    return [row[turn] for turn in range(longest) for row in rows if turn < len(row)]


def _java_order(text: str) -> bytes:
    """A key that sorts as Java sorts strings: by UTF-16 units, which differs from Python beyond the BMP."""
    return text.encode("utf-16-be", "surrogatepass")


def assign_more(
    racks: Racks,
    present: Mapping[int, Sequence[int]],
    total_partitions: int,
    random_below: RandomBelow,
) -> dict[int, tuple[int, ...]]:
    """Replicas for the partitions that are added to a topic whose partitions are `present`.

    Starts at the broker of the first partition, as Kafka does. Raises InvalidPartitionsError.
    """
    more = total_partitions - len(present)
    if more <= 0:
        raise InvalidPartitionsError(
            f"the topic has {len(present)} partitions already, {total_partitions} would not be an increase"
        )
    first_replica = present[0][0]
    at_or_above = (index for index, broker_id in enumerate(sorted(racks)) if broker_id >= first_replica)
    return assign_replicas(
        racks,
        more,
        len(present[0]),
        random_below,
        fixed_start=next(at_or_above, 0),
        first_partition=len(present),
    )


def validate_assignment(
    partitions: Mapping[int, Sequence[int]],
    expected_partitions: Iterable[int],
    broker_ids: Collection[int],
    replication_factor: int | None = None,
) -> None:
    """Checks an assignment that was chosen by hand.

    Partitions must be consecutive and have equally many replicas (`replication_factor`, if it is given),
    without duplicates, on known brokers. Raises InvalidReplicaAssignmentError.
    """
    if not partitions or sorted(partitions) != list(expected_partitions):
        raise InvalidReplicaAssignmentError(
            f"the partitions of an assignment are numbered without gaps, not {sorted(partitions)}"
        )
    wanted = replication_factor or len(next(iter(partitions.values())))
    for partition, replicas in sorted(partitions.items()):
        if not replicas or len(replicas) != wanted:
            raise InvalidReplicaAssignmentError(
                f"partition {partition} has {len(replicas)} replicas, others {wanted}"
            )
        if len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignmentError(f"partition {partition} has a broker twice: {list(replicas)}")
        unknown = sorted(set(replicas) - set(broker_ids))
        if unknown:
            raise InvalidReplicaAssignmentError(
                f"partition {partition} is given to brokers that are not alive: {unknown}"
            )
