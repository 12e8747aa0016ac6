"""Makes schedules from seeds."""

from __future__ import annotations

import random

from klog.coordinator.transactions.coordinator import TRANSACTION_STATE
from klog.formats.names import CONSUMER_OFFSETS
from tests.simulation.coordinators import INTERNAL
from tests.simulation.schedule import (
    CHAOS_MS,
    AddPartition,
    Configure,
    Crash,
    CreateTopic,
    Cut,
    DeleteRecords,
    DeleteTopic,
    Depose,
    ElectPreferred,
    ElectUnclean,
    Expire,
    FailDirectory,
    Fault,
    Flush,
    MoveReplica,
    Pause,
    Reassign,
    Schedule,
    ShutDown,
    SkewClock,
    Slow,
    SlowController,
)
from tests.simulation.scheduler import stream
from tests.simulation.tree import TREE

_NAMES = ("a", "b")
# How many of the schedules are only about coordinators that move, and about controllers that are replaced.
_HAND_OVERS = 0.08
_DEPOSED = 0.06
# How records are kept by their age, in schedules of some seconds.
_SHORT_RETENTION_MS = ("250", "1000", "2500")

# As soon as there is something to clean.
_CLEANED = ("min.cleanable.dirty.ratio", "0.01")

Topic = tuple[str, tuple[tuple[int, ...], ...], tuple[tuple[str, str], ...]]


def schedule(seed: int) -> Schedule:
    """The schedule of a seed."""
    moving = stream(seed, "hand-overs")
    if moving.random() < _HAND_OVERS:
        return _hand_overs(seed, moving)
    deposing = stream(seed, "controllers")
    if deposing.random() < _DEPOSED:
        return _deposed_controllers(seed, deposing)
    rng = stream(seed, "schedule")
    brokers = tuple(range(1, rng.choice((3, 3, 3, 4)) + 1))
    log_dirs = rng.choice((1, 1, 2))
    maker = _Maker(rng, brokers, log_dirs)
    topics: list[Topic] = [("a", maker.replicas(), maker.configs())]
    if rng.random() < 0.3:
        topics.append(("b", maker.replicas(), maker.configs()))
    if rng.random() < 0.6:
        topics += maker.internal_topics()
    chaos_ms = rng.choice((CHAOS_MS // 2, CHAOS_MS // 2, CHAOS_MS))
    drawn = [maker.fault(rng.randrange(chaos_ms)) for _ in range(rng.randint(4, 12))]
    if topics[-1][0] in INTERNAL and rng.random() < 0.4:
        drawn += maker.slow_hand_over(rng.randrange(chaos_ms))
    faults = sorted(drawn, key=lambda each: each.at_ms)
    loss = rng.choice((0.0, 0.0, 0.002, 0.02))
    tick_ms = rng.choice((100, 250, 500))
    return Schedule(seed, brokers, tuple(topics), tuple(faults), loss, chaos_ms, tick_ms, log_dirs)


def _hand_overs(seed: int, rng: random.Random) -> Schedule:
    """The transaction coordinator moves again and again between two brokers, neither of which fails.

    Markers of the one that hands over reach another broker late: after those of the new one, and maybe in the
    producer's next transaction.
    """
    faults: list[Fault] = []
    old, new, spare, data = 1, 2, 3, 4
    at_ms = rng.randrange(250, 750)
    while at_ms < CHAOS_MS - 500:
        move_ms = at_ms + rng.randrange(150, 600)
        faults += [
            Slow(at_ms, f"b{old}", f"b{data}", 750),
            Reassign(move_ms, TRANSACTION_STATE, 0, (new, old, spare)),
            ElectPreferred(move_ms + 60),
        ]
        old, new = new, old
        at_ms += rng.randrange(750, 1_250)
    partitions = ((data, spare), (data, 2), (data, spare))[: rng.choice((2, 3))]
    compacted = (("cleanup.policy", "compact"), _CLEANED, ("segment.bytes", "1000"))
    topics: tuple[Topic, ...] = (
        ("a", partitions, ()),
        (TRANSACTION_STATE, ((1, 2, spare),), compacted),
        (CONSUMER_OFFSETS, ((data, spare),), compacted),
    )
    in_order = tuple(sorted(faults, key=lambda each: each.at_ms))
    return Schedule(seed, (1, 2, spare, data), topics, in_order, 0.0, CHAOS_MS, rng.choice((100, 250)))


def _deposed_controllers(seed: int, rng: random.Random) -> Schedule:
    """Controllers are replaced while their requests are on their way, and these arrive after newer ones.

    Partitions move meanwhile, so the requests of two controllers contradict each other.
    """
    brokers = (1, 2, 3, 4)
    topics: tuple[Topic, ...] = (
        ("a", tuple(tuple(rng.sample(brokers, 3)) for _ in range(2)), (("min.insync.replicas", "2"),)),
    )
    faults: list[Fault] = []
    at_ms = rng.randrange(150, 750)
    while at_ms < CHAOS_MS - 500:
        faults.append(SlowController(at_ms, 750))
        for _ in range(rng.randint(1, 3)):
            number, target = rng.randrange(2), tuple(rng.sample(brokers, 3))
            faults.append(Reassign(at_ms + rng.randrange(1, 300), "a", number, target))
        faults.append(ElectPreferred(at_ms + rng.randrange(150, 300)))
        if rng.random() < 0.4:
            faults.append(Expire(at_ms + rng.randrange(300), rng.choice(brokers)))
        faults.append(Depose(at_ms + 300 + rng.randrange(150)))
        at_ms += rng.randrange(750, 1_750)
    in_order = tuple(sorted(faults, key=lambda each: each.at_ms))
    return Schedule(seed, brokers, topics, in_order, 0.0, CHAOS_MS, rng.choice((100, 250)))


class _Maker:
    """Draws faults."""

    def __init__(self, rng: random.Random, brokers: tuple[int, ...], log_dirs: int) -> None:
        self._rng = rng
        self._brokers = brokers
        weights = {
            self._crash: 20,
            self._pause: 14,
            self._cut: 20,
            self._slow: 8,
            self._expire: 8,
            self._depose: 4,
            self._skew: 3,
            self._configure: 8,
            self._create: 3,
            self._delete: 2,
            self._add_partition: 3,
            self._reassign: 8,
            self._elect: 6,
            self._shut_down: 5,
            self._delete_records: 3,
            self._flush: 3,
            self._fail_directory: 20 if log_dirs > 1 else 0,
            self._move_replica: 30 if log_dirs > 1 else 0,
        }
        self._makers = tuple(weights)
        # Each schedule has its own mix: some are mostly crashes, others mostly cuts.
        self._weights = [rng.random() ** 3 * weight for weight in weights.values()]

    def fault(self, at_ms: int) -> Fault:
        return self._rng.choices(self._makers, self._weights)[0](at_ms)

    def slow_hand_over(self, at_ms: int) -> list[Fault]:
        """A broker hands over what it coordinates while its messages to another are slow."""
        broker, other = self._rng.sample(self._brokers, 2)
        slow = Slow(at_ms, f"b{broker}", f"b{other}", 1_000)
        return [slow, ShutDown(at_ms + self._rng.randrange(200), broker, self._span())]

    def replicas(self) -> tuple[tuple[int, ...], ...]:
        count = self._rng.choice((1, 1, 2))
        factor = self._factor()
        return tuple(self._some_replicas(factor) for _ in range(count))

    def _factor(self) -> int:
        return self._rng.choice((1, 2, 2, 3, 3, 3, 3))

    def _some_replicas(self, factor: int) -> tuple[int, ...]:
        return tuple(self._rng.sample(self._brokers, factor))

    def internal_topics(self) -> list[Topic]:
        """Those of the coordinators, replicated as an administrator would have it."""
        replicas = tuple(self._some_replicas(3) for _ in range(self._rng.choice((1, 2))))
        in_sync = self._rng.choice(("1", "2", "2"))
        transactions = [("min.insync.replicas", in_sync), ("cleanup.policy", "compact")]
        offsets = [("cleanup.policy", "compact")]
        if self._rng.random() < 0.4:
            transactions.append(_CLEANED)
            offsets += [_CLEANED, ("segment.bytes", "2500")]
        if self._rng.random() < 0.3:
            offsets.append(("segment.bytes", "1000"))
        if self._rng.random() < 0.3:
            transactions.append(("segment.bytes", "1000"))
        return [
            (TRANSACTION_STATE, replicas, tuple(transactions)),
            (CONSUMER_OFFSETS, (self._some_replicas(3),), tuple(offsets)),
        ]

    def configs(self) -> tuple[tuple[str, str], ...]:
        chosen = [("min.insync.replicas", self._rng.choice(("1", "1", "2")))]
        if self._rng.random() < 0.15:
            chosen.append(("unclean.leader.election.enable", "true"))
        if self._rng.random() < 0.3:
            chosen.append(("segment.bytes", self._rng.choice(("200", "1000"))))
        if self._rng.random() < 0.3:
            chosen.append(("index.interval.bytes", "100"))
        if self._rng.random() < 0.2:
            chosen.append(("flush.messages", self._rng.choice(("1", "5"))))
        kept = self._rng.random()
        if kept < 0.25:
            chosen += [("cleanup.policy", "compact"), _CLEANED]
        elif kept < 0.35:
            chosen.append(("retention.bytes", self._rng.choice(("300", "3000"))))
        elif kept < 0.45:
            chosen.append(("retention.ms", self._rng.choice(_SHORT_RETENTION_MS)))
        if kept < 0.45:
            chosen.append(("segment.bytes", self._rng.choice(("300", "1000", "1000"))))
        return tuple(chosen)

    def _broker(self) -> int:
        return self._rng.choice(self._brokers)

    def _topic(self) -> str:
        return self._rng.choice(_NAMES)

    def _span(self) -> int:
        return self._rng.choice((25, 150, 500, 1_250, 2_000, 3_500)) + self._rng.randrange(150)

    def _crash(self, at_ms: int) -> Fault:
        return Crash(at_ms, self._broker(), self._span(), self._rng.random() < 0.4)

    def _pause(self, at_ms: int) -> Fault:
        return Pause(at_ms, self._broker(), self._span())

    def _link(self) -> tuple[str, str]:
        source = f"b{self._broker()}"
        others = [f"b{each}" for each in self._brokers if f"b{each}" != source]
        target = self._rng.choice((*others, *others, TREE, TREE, "clients"))
        return (source, target) if self._rng.random() < 0.5 else (target, source)

    def _cut(self, at_ms: int) -> Fault:
        return Cut(at_ms, *self._link(), self._span())

    def _slow(self, at_ms: int) -> Fault:
        return Slow(at_ms, *self._link(), self._span())

    def _expire(self, at_ms: int) -> Fault:
        return Expire(at_ms, self._broker())

    def _depose(self, at_ms: int) -> Fault:
        return Depose(at_ms)

    def _skew(self, at_ms: int) -> Fault:
        return SkewClock(at_ms, self._broker(), self._rng.choice((-1, 1)) * self._rng.randrange(100_000))

    def _configure(self, at_ms: int) -> Fault:
        name, value = self._rng.choice(
            (
                ("min.insync.replicas", "1"),
                ("min.insync.replicas", "2"),
                ("min.insync.replicas", "3"),
                ("unclean.leader.election.enable", "true"),
                ("unclean.leader.election.enable", "false"),
            )
        )
        # Topics of the coordinators must not lose records.
        topic = self._rng.choice((*_NAMES, *INTERNAL)) if name == "min.insync.replicas" else self._topic()
        return Configure(at_ms, topic, name, value)

    def _create(self, at_ms: int) -> Fault:
        return CreateTopic(at_ms, self._topic(), self.replicas())

    def _delete(self, at_ms: int) -> Fault:
        return DeleteTopic(at_ms, self._topic())

    def _add_partition(self, at_ms: int) -> Fault:
        return AddPartition(at_ms, self._topic(), self._some_replicas(self._factor()))

    def _reassign(self, at_ms: int) -> Fault:
        target = self._some_replicas(self._factor()) if self._rng.random() < 0.85 else ()
        return Reassign(at_ms, self._rng.choice((*_NAMES, *INTERNAL)), self._rng.randrange(2), target)

    def _elect(self, at_ms: int) -> Fault:
        return ElectUnclean(at_ms) if self._rng.random() < 0.1 else ElectPreferred(at_ms)

    def _shut_down(self, at_ms: int) -> Fault:
        return ShutDown(at_ms, self._broker(), self._span())

    def _delete_records(self, at_ms: int) -> Fault:
        return DeleteRecords(at_ms, self._topic(), self._rng.randrange(2))

    def _fail_directory(self, at_ms: int) -> Fault:
        return FailDirectory(at_ms, self._broker(), self._rng.randrange(2))

    def _move_replica(self, at_ms: int) -> Fault:
        topic = self._rng.choice((*_NAMES, *_NAMES, *INTERNAL))
        return MoveReplica(at_ms, self._broker(), topic, self._rng.randrange(2))

    def _flush(self, at_ms: int) -> Fault:
        return Flush(at_ms, self._broker())
