"""Schedules that have found defects, as the simulation has shrunk them."""

from __future__ import annotations

from tests.simulation.run import run
from tests.simulation.schedule import (
    AddPartition,
    Crash,
    DeleteRecords,
    DeleteTopic,
    Depose,
    Expire,
    Pause,
    Reassign,
    Schedule,
    ShutDown,
    Slow,
)


def test_a_follower_that_was_truncated_learns_the_high_watermark() -> None:
    # The leader's fetch session counted the high watermark beside a diverging epoch as sent.
    schedule = Schedule(
        seed=655,
        brokers=(1, 2, 3),
        topics=(("a", ((2, 3),), (("min.insync.replicas", "1"),)),),
        faults=(
            ShutDown(at_ms=3174, broker=2, down_ms=612),
            Pause(at_ms=4637, broker=2, for_ms=131),
            Crash(at_ms=4754, broker=3, down_ms=27, power=False),
        ),
        loss=0.0,
        chaos_ms=4804,
    )
    assert run(schedule).failure is None


def test_a_log_that_loses_power_again_may_end_below_all_that_is_compared() -> None:
    # The rules of the test missed it: what they compared began above the end of the log that is left.
    schedule = Schedule(
        seed=4050887,
        brokers=(1, 2, 3),
        topics=(
            (
                "a",
                ((3, 1),),
                (
                    ("min.insync.replicas", "1"),
                    ("index.interval.bytes", "100"),
                    ("retention.bytes", "3000"),
                    ("segment.bytes", "1000"),
                ),
            ),
        ),
        faults=(
            Crash(at_ms=163, broker=2, down_ms=2005, power=False),
            Crash(at_ms=247, broker=3, down_ms=1263, power=True),
            Crash(at_ms=278, broker=1, down_ms=574, power=True),
            Crash(at_ms=1827, broker=3, down_ms=68, power=True),
        ),
        loss=0.0,
        chaos_ms=1927,
        tick_ms=250,
        log_dirs=1,
    )
    assert run(schedule).failure is None


def test_a_follower_keeps_what_its_leader_never_had_below_the_log_start_offset() -> None:
    # The rules of the test missed it. b1 led and wrote at 2 what nobody fetched. b2, elected after it, wrote
    # another record at 2, took the producer's again at 5, and deleted what is below 3. So it forgot where the
    # epoch of b1 ends, answered b1 that this is at 3, and b1 cut nothing.
    schedule = Schedule(
        seed=4201201,
        brokers=(1, 2, 3, 4),
        topics=(
            (
                "a",
                ((2, 3, 4), (1, 2, 4)),
                (("min.insync.replicas", "1"), ("unclean.leader.election.enable", "true")),
            ),
            (
                "__transaction_state",
                ((4, 3, 1),),
                (
                    ("min.insync.replicas", "2"),
                    ("cleanup.policy", "compact"),
                    ("min.cleanable.dirty.ratio", "0.01"),
                ),
            ),
            (
                "__consumer_offsets",
                ((4, 2, 3),),
                (
                    ("cleanup.policy", "compact"),
                    ("min.cleanable.dirty.ratio", "0.01"),
                    ("segment.bytes", "2500"),
                ),
            ),
        ),
        faults=(
            Pause(at_ms=51, broker=1, for_ms=3509),
            Pause(at_ms=688, broker=3, for_ms=691),
            Expire(at_ms=2076, broker=4),
            DeleteRecords(at_ms=2486, topic="a", partition=1),
        ),
        loss=0.02,
        chaos_ms=2586,
        tick_ms=500,
        log_dirs=1,
    )
    assert run(schedule).failure is None


def test_records_of_an_excused_epoch_that_are_committed_in_a_later_one_may_differ() -> None:
    # The rules of the test missed it. All replicas lost power, and b1 led on in epoch 0 before a controller
    # noticed. b2 still had another record of epoch 0 at 0, and cannot know that it differs. The one of b1
    # was committed in a later epoch, because nobody fetched it before.
    schedule = Schedule(
        seed=4201363,
        brokers=(1, 2, 3),
        topics=(
            (
                "__consumer_offsets",
                ((1, 3, 2),),
                (
                    ("cleanup.policy", "compact"),
                    ("min.cleanable.dirty.ratio", "0.01"),
                    ("segment.bytes", "2500"),
                ),
            ),
        ),
        faults=(
            Crash(at_ms=394, broker=1, down_ms=1314, power=True),
            Crash(at_ms=1400, broker=3, down_ms=78, power=True),
            Crash(at_ms=1557, broker=2, down_ms=69, power=True),
        ),
        loss=0.0,
        chaos_ms=2278,
        tick_ms=500,
        log_dirs=2,
    )
    assert run(schedule).failure is None


def test_a_request_is_not_served_while_the_one_before_it_is_answered() -> None:
    # The simulation stood still. A task of a partition of groups answered a commit, and the next commits of
    # the connection were served at once, inside of that task, for whose end they waited. A network thread of
    # the broker serves them in its next turn.
    schedule = Schedule(
        seed=4206530,
        brokers=(1, 2, 3),
        topics=(
            (
                "a",
                ((1,), (3,)),
                (("min.insync.replicas", "1"), ("segment.bytes", "1000"), ("index.interval.bytes", "100")),
            ),
            (
                "b",
                ((2, 3), (2, 1)),
                (("min.insync.replicas", "2"), ("retention.ms", "2500"), ("segment.bytes", "1000")),
            ),
            (
                "__transaction_state",
                ((1, 3, 2), (2, 3, 1)),
                (
                    ("min.insync.replicas", "1"),
                    ("cleanup.policy", "compact"),
                    ("min.cleanable.dirty.ratio", "0.01"),
                ),
            ),
            (
                "__consumer_offsets",
                ((1, 3, 2),),
                (
                    ("cleanup.policy", "compact"),
                    ("min.cleanable.dirty.ratio", "0.01"),
                    ("segment.bytes", "2500"),
                ),
            ),
        ),
        faults=(
            Depose(at_ms=499),
            Slow(at_ms=1051, source="b3", target="b1", for_ms=1000),
            ShutDown(at_ms=1111, broker=3, down_ms=68),
            Depose(at_ms=1199),
        ),
        loss=0.0,
        chaos_ms=2399,
        tick_ms=250,
        log_dirs=1,
    )
    assert run(schedule).failure is None


def test_a_follower_learns_a_high_watermark_that_came_in_an_epoch_before() -> None:
    # It did not use the answer, and the leader's fetch session counted the high watermark as sent.
    schedule = Schedule(
        seed=4210535,
        brokers=(1, 2, 3),
        topics=(
            (
                "a",
                ((1, 3, 2),),
                (
                    ("min.insync.replicas", "1"),
                    ("segment.bytes", "1000"),
                    ("flush.messages", "1"),
                    ("retention.ms", "250"),
                ),
            ),
            ("b", ((3, 2), (1, 2)), (("min.insync.replicas", "1"),)),
        ),
        faults=(
            AddPartition(at_ms=193, topic="b", replicas=(3, 2, 1)),
            Expire(at_ms=1528, broker=1),
            Pause(at_ms=1641, broker=1, for_ms=1308),
        ),
        loss=0.02,
        chaos_ms=3000,
        tick_ms=500,
        log_dirs=1,
    )
    assert run(schedule).failure is None


def test_a_transaction_s_offset_may_be_lost_with_the_records_of_its_coordinator() -> None:
    # Power failed before the marker was sent. The rules regarded only losses of the partition of the offsets.
    schedule = Schedule(
        seed=4212041,
        brokers=(1, 2, 3),
        topics=(
            ("a", ((3, 1, 2), (2, 1, 3)), (("min.insync.replicas", "1"),)),
            (
                "__transaction_state",
                ((2, 3, 1),),
                (("min.insync.replicas", "1"), ("cleanup.policy", "compact"), ("segment.bytes", "1000")),
            ),
            ("__consumer_offsets", ((3, 1, 2),), (("cleanup.policy", "compact"),)),
        ),
        faults=(
            DeleteTopic(at_ms=38, topic="a"),
            Crash(at_ms=2610, broker=3, down_ms=86, power=False),
            Crash(at_ms=3335, broker=1, down_ms=56, power=False),
            Crash(at_ms=4648, broker=2, down_ms=58, power=False),
            Crash(at_ms=5844, broker=3, down_ms=68, power=True),
            ShutDown(at_ms=6072, broker=1, down_ms=73),
        ),
        loss=0.02,
        chaos_ms=6000,
        tick_ms=100,
        log_dirs=1,
    )
    assert run(schedule).failure is None


def test_another_replica_in_sync_leads_if_a_second_reassignment_removes_the_leader() -> None:
    # b1 led, which only the first one was adding. Nobody was elected in its place, and b3 could not catch up.
    schedule = Schedule(
        seed=4421452,
        brokers=(1, 2, 3, 4),
        topics=(("a", ((3, 2),), (("min.insync.replicas", "1"),)),),
        faults=(
            ShutDown(at_ms=480, broker=3, down_ms=1763),
            Reassign(at_ms=628, topic="a", partition=0, replicas=(1, 3)),
            Reassign(at_ms=2985, topic="a", partition=0, replicas=(3,)),
        ),
        loss=0.0,
        chaos_ms=3000,
        tick_ms=100,
        log_dirs=1,
    )
    assert run(schedule).failure is None


def test_a_replica_that_a_reassignment_has_removed_does_not_enter_the_isr() -> None:
    # b3 was shutting down, so that it did not hear of the end of the reassignment, and added b2. When b3 was
    # away, the ISR was b2 alone, which was not assigned any more.
    schedule = Schedule(
        seed=20966,
        brokers=(1, 2, 3, 4),
        topics=(("a", ((1, 4), (3, 2)), (("min.insync.replicas", "2"),)),),
        faults=(
            ShutDown(at_ms=289, broker=2, down_ms=1153),
            ShutDown(at_ms=1919, broker=3, down_ms=98),
            Reassign(at_ms=2297, topic="a", partition=1, replicas=(3,)),
            Depose(at_ms=2299),
        ),
        loss=0.0,
        chaos_ms=2399,
        tick_ms=100,
        log_dirs=1,
    )
    assert run(schedule).failure is None


def test_a_leader_that_an_unclean_one_has_replaced_deletes_records_of_its_own() -> None:
    # The rules of the test missed it. b3 went on, did not know b1 yet, and deleted its own old record at 56.
    # The record that b1 has at 56 was younger.
    schedule = Schedule(
        seed=4244087,
        brokers=(1, 2, 3),
        topics=(
            (
                "a",
                ((3, 1),),
                (
                    ("min.insync.replicas", "1"),
                    ("unclean.leader.election.enable", "true"),
                    ("flush.messages", "5"),
                    ("retention.ms", "2500"),
                    ("segment.bytes", "300"),
                ),
            ),
        ),
        faults=(Pause(at_ms=1548, broker=1, for_ms=2071), Pause(at_ms=3340, broker=3, for_ms=3648)),
        loss=0.0,
        chaos_ms=6000,
        tick_ms=100,
        log_dirs=1,
    )
    assert run(schedule).failure is None
