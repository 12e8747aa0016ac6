"""Replica assignment: Kafka's documented examples, properties, and Kafka's own answers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.metadata.assignment import (
    assign_more,
    assign_replicas,
    rack_alternated,
    validate_assignment,
)
from klog.metadata.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
)
from tests.peers import KafkaPeer

Racks = Mapping[int, str | None]


def below(limit: int) -> int:
    return random.Random(limit).randrange(limit)


def unracked(count: int) -> Racks:
    return dict.fromkeys(range(count))


def test_kafkas_documented_example_without_racks() -> None:
    assignment = assign_replicas(unracked(5), 10, 3, below, fixed_start=0)
    columns = [list(replicas) for replicas in zip(*assignment.values(), strict=True)]
    assert columns == [
        [0, 1, 2, 3, 4, 0, 1, 2, 3, 4],
        [1, 2, 3, 4, 0, 2, 3, 4, 0, 1],
        [2, 3, 4, 0, 1, 3, 4, 0, 1, 2],
    ]


def test_kafkas_documented_example_with_racks() -> None:
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert rack_alternated(racks) == [0, 3, 1, 5, 4, 2]
    assignment = assign_replicas(racks, 7, 3, below, fixed_start=0)
    assert assignment == {
        0: (0, 3, 1),
        1: (3, 1, 5),
        2: (1, 5, 4),
        3: (5, 4, 2),
        4: (4, 2, 0),
        5: (2, 0, 3),
        6: (0, 4, 2),
    }


def test_racks_of_unequal_size_alternate_until_they_run_out() -> None:
    assert rack_alternated({0: "a", 1: "a", 2: "b", 3: "c", 4: "c"}) == [0, 2, 3, 1, 4]


_racks = st.dictionaries(
    st.integers(0, 30), st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=9
) | st.sets(st.integers(0, 30), min_size=1, max_size=9).map(lambda ids: dict.fromkeys(sorted(ids)))


@given(_racks, st.data(), st.randoms(use_true_random=False))
def test_every_assignment_is_valid_and_balanced(
    racks: Racks, data: st.DataObject, rng: random.Random
) -> None:
    replication_factor = data.draw(st.integers(1, len(racks)))
    count = data.draw(st.integers(1, 40))
    assignment = assign_replicas(racks, count, replication_factor, rng.randrange)
    validate_assignment(assignment, range(count), list(racks), replication_factor)
    leaders = Counter(replicas[0] for replicas in assignment.values())
    # First replicas go round robin: no broker has two more than another.
    assert max(leaders.values()) - min(leaders.get(each, 0) for each in racks) <= 1
    rack_count = len(set(racks.values()))
    if None not in racks.values():
        for replicas in assignment.values():
            used = Counter(racks[each] for each in replicas)
            assert len(used) == min(replication_factor, rack_count)


@given(_racks, st.data(), st.randoms(use_true_random=False))
def test_added_partitions_continue_the_round_robin(
    racks: Racks, data: st.DataObject, rng: random.Random
) -> None:
    replication_factor = data.draw(st.integers(1, len(racks)))
    start = data.draw(st.integers(0, len(racks) - 1))
    whole = assign_replicas(racks, 12, replication_factor, rng.randrange, fixed_start=start)
    present = {number: whole[number] for number in range(5)}
    grown = assign_more(racks, present, 12, rng.randrange)
    assert sorted(grown) == list(range(5, 12))
    if None in racks.values():
        assert [grown[each][0] for each in grown] == [whole[each][0] for each in grown]
        # Added partitions do not continue the followers' shift. Here it had not grown.
        if len(racks) >= len(present):
            assert {**present, **grown} == whole


def test_added_partitions_start_at_the_first_broker_not_below_the_first_replica() -> None:
    # Broker 3, where partition 0 began, has left. Broker 4 takes its place.
    racks = dict.fromkeys([0, 1, 4])
    assert assign_more(racks, {0: (3, 0)}, 2, below) == assign_replicas(
        racks, 1, 2, below, fixed_start=2, first_partition=1
    )
    assert assign_more(racks, {0: (9, 0)}, 2, below) == assign_replicas(
        racks, 1, 2, below, fixed_start=0, first_partition=1
    )


def test_impossible_assignments_are_refused() -> None:
    with pytest.raises(InvalidPartitionsError):
        assign_replicas(unracked(3), 0, 1, below)
    with pytest.raises(InvalidReplicationFactorError):
        assign_replicas(unracked(3), 1, 0, below)
    with pytest.raises(InvalidReplicationFactorError, match="number of brokers, 3"):
        assign_replicas(unracked(3), 1, 4, below)
    with pytest.raises(InvalidReplicaAssignmentError, match="rack"):
        assign_replicas({0: "a", 1: None}, 1, 1, below)
    with pytest.raises(InvalidPartitionsError, match="2 partitions already"):
        assign_more(unracked(3), {0: (1,), 1: (2,)}, 2, below)


@pytest.mark.parametrize(
    ("partitions", "what"),
    [
        ({}, "without gaps"),
        ({1: [0]}, "without gaps"),
        ({0: [0], 2: [0]}, "without gaps"),
        ({0: []}, "0 replicas"),
        ({0: [0, 1], 1: [0]}, "partition 1 has 1 replicas"),
        ({0: [1, 1]}, "twice"),
        ({0: [7]}, r"not alive: \[7\]"),
        ({0: [-1]}, "not alive"),
    ],
)
def test_an_invalid_manual_assignment_is_refused(partitions: dict[int, list[int]], what: str) -> None:
    with pytest.raises(InvalidReplicaAssignmentError, match=what):
        validate_assignment(partitions, range(len(partitions)), [0, 1])


@pytest.mark.kafka
def test_kafka_assigns_the_same(kafka3: KafkaPeer) -> None:
    rng = random.Random(36)
    cases = []
    for _ in range(400):
        ids = rng.sample(range(40), rng.randint(1, 9))
        names = rng.choice([[""], ["a", "b"], ["a", "b", "c", "d", "é"]])
        racks = {each: rng.choice(names) or None for each in ids}
        cases.append(
            (racks, rng.randint(1, 30), rng.randint(1, len(ids)), rng.randrange(len(ids)), rng.randint(0, 20))
        )
    lines = [
        f"{count} {factor} {start} {first} "
        + ",".join(f"{each}:{rack or ''}" for each, rack in racks.items())
        for racks, count, factor, start, first in cases
    ]
    # The rack-unaware algorithm takes brokers in the order given; Kafka's callers sort them by id.
    lines = [
        " ".join([*line.split(" ")[:4], ",".join(sorted(line.split(" ")[4].split(","), key=_id))])
        for line in lines
    ]
    done = kafka3.java("AssignReplicas", stdin="\n".join(lines).encode())
    assert done.returncode == 0, done.stderr.decode()
    ours = [
        ";".join(
            f"{partition}={','.join(map(str, replicas))}"
            for partition, replicas in assign_replicas(
                racks, count, factor, below, fixed_start=start, first_partition=first
            ).items()
        )
        for racks, count, factor, start, first in cases
    ]
    assert ours == done.stdout.decode().splitlines()


def _id(broker: str) -> int:
    return int(broker.partition(":")[0])
