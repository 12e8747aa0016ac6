"""Runs a schedule: the cluster starts, faults happen, everything is mended, and then all must agree."""

from __future__ import annotations

import gc
import logging
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.metadata import topics
from klog.metadata.values import LeaderAndIsr
from tests.simulation import faults
from tests.simulation.coordinators import INPUT, INPUT_PARTITIONS
from tests.simulation.log_content import LogContent, check_indexes
from tests.simulation.retention_at_end import check_retention
from tests.simulation.schedule import Schedule
from tests.simulation.scheduler import US_PER_MS
from tests.simulation.transactions_at_end import check_transactions, undecided
from tests.simulation.world import World, directory

_START_MS = 500
_CONVERGE_MS = 90_000
_CHECK_EVERY_MS = 250


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a schedule failed, and what happened before."""

    schedule: Schedule
    error: AssertionError | Exception
    traceback: str
    trace: tuple[str, ...]

    @property
    def what(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did, and its failure if there was one."""

    failure: Failure | None
    counts: Counter[str]
    calls: int


def run(schedule: Schedule) -> Outcome:
    """Run a schedule."""
    with one_collection():
        return _run(schedule)


def _run(schedule: Schedule) -> Outcome:
    with directory() as path, unexpected_errors() as errors:
        world = World(schedule, path, errors)
        failure = None
        try:
            _play(world)
        except Exception as error:
            failure = Failure(schedule, error, traceback.format_exc(), tuple(world.trace))
        finally:
            world.close()
        return Outcome(failure, world.counts, world.scheduler.calls)


@contextmanager
def one_collection() -> Iterator[None]:
    """Collect garbage once at the end. A run makes little, and has many objects to look at."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0)
        if was_enabled:
            gc.enable()


class _UnexpectedErrors(logging.Handler):
    """Gathers errors after which a broker logs a traceback and goes on. Those of disks are none."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, KlogError | OSError):
            self.errors.append(error)


@contextmanager
def unexpected_errors() -> Iterator[list[BaseException]]:
    """Gather errors that brokers log, and print no log lines."""
    handler, klog = _UnexpectedErrors(), logging.getLogger("klog")
    before = klog.propagate, logging.root.manager.disable
    klog.addHandler(handler)
    klog.propagate = False
    logging.disable(logging.WARNING)
    try:
        yield handler.errors
    finally:
        klog.removeHandler(handler)
        klog.propagate = before[0]
        logging.disable(before[1])


def _play(world: World) -> None:
    schedule, scheduler = world.schedule, world.scheduler
    began_us = scheduler.now_us
    for broker_id in schedule.brokers:
        world.start(broker_id)
    for name, replicas, config in schedule.topics:
        world.configs[name] = dict(config)
        world.create_topic(name, replicas)
    if world.has_coordinators:
        world.create_topic(INPUT, [schedule.brokers[:1]] * INPUT_PARTITIONS)
    world.clients.start()
    for fault in schedule.faults:
        delay_us = (_START_MS + fault.at_ms) * US_PER_MS
        scheduler.after(delay_us, world.server, lambda fault=fault: faults.apply(world, fault))  # type: ignore[misc]
    scheduler.run_until(began_us + (_START_MS + schedule.chaos_ms) * US_PER_MS)
    _heal(world)
    for _ in range(_CONVERGE_MS // _CHECK_EVERY_MS):
        scheduler.run_until(scheduler.now_us + _CHECK_EVERY_MS * US_PER_MS)
        missing = unfinished(world)
        if not missing:
            break
    else:
        raise AssertionError(f"{_CONVERGE_MS / 1000:.0f} s after everything was mended: {missing}")
    _check_end(world)
    check_transactions(world)
    check_retention(world)


def _heal(world: World) -> None:
    world.note("everything is mended")
    world.is_calm = True
    world.network.heal()
    world.clients.producing = False
    for broker in list(world.brokers.values()):
        if broker.process.paused:
            faults.resume(world, broker)
        faults.reconnect(world, broker)
        if world.failing.intersection(broker.disk.directories):
            world.crash(broker.broker_id, power=False)
    for broker_id in world.schedule.brokers:
        world.start(broker_id)


def unfinished(world: World) -> str:
    """What is not as it will be when all is well; empty if all is well."""
    if len(world.brokers) < len(world.schedule.brokers):
        return f"brokers {sorted(world.brokers)} are up"
    if not any(each.core.is_active for each in world.brokers.values()):
        return "there is no controller"
    if topics.topics_to_delete(world.admin):
        return f"topics {topics.topics_to_delete(world.admin)} are being deleted"
    for broker in world.brokers.values():
        for log in broker.logs.futures.logs.futures():
            if log.partition in broker.replicas.partitions:
                return f"b{broker.broker_id} still moves {log.partition}"
    for name in topics.topic_names(world.admin):
        assignment = topics.read_topics(world.admin, [name])[name]
        states = topics.read_partition_states(world.admin, [key for key, _ in assignment])
        for key, replicas in assignment:
            if key not in states:
                return f"{key} has no state"
            state = states[key].leader_and_isr
            if replicas.is_being_reassigned:
                return f"{key} is being reassigned: {replicas}"
            if state.leader < 0 or set(state.isr) != set(replicas.replicas):
                return f"{key} has leader {state.leader} and ISR {state.isr} of {replicas.replicas}"
            missing = _not_alike(world, key, state.leader, state.leader_epoch, replicas.replicas)
            missing = missing or _not_known(world, key, state, replicas.replicas)
            if missing:
                return missing
    return undecided(world)


def _not_known(world: World, key: TopicPartition, state: LeaderAndIsr, replicas: tuple[int, ...]) -> str:
    expected = (state.leader, state.leader_epoch, tuple(state.isr), replicas)
    for broker in world.brokers.values():
        cached = broker.cache.snapshot.partition(key)
        found = cached and (cached.leader, cached.leader_epoch, tuple(cached.isr), tuple(cached.replicas))
        if found != expected:
            return f"b{broker.broker_id} answers {found} for {key}, not {expected}"
    return ""


def _not_alike(world: World, key: TopicPartition, leader: int, epoch: int, replicas: tuple[int, ...]) -> str:
    ends = {}
    for broker_id in replicas:
        partition = world.brokers[broker_id].replicas.partitions.get(key)
        if partition is None:
            return f"b{broker_id} has no replica of {key}"
        state, log = partition.state, partition.log
        if (state.leader, state.leader_epoch) != (leader, epoch):
            known = f"{state.leader} in epoch {state.leader_epoch}"
            return f"b{broker_id} knows as leader of {key} {known}, not {leader} in epoch {epoch}"
        ends[broker_id] = (log.log_end_offset, log.high_watermark)
    if any(end != ends[leader] or end[0] != end[1] for end in ends.values()):
        return f"{key} has (log end offset, high watermark) {ends} on its brokers, b{leader} leads"
    return ""


def _check_end(world: World) -> None:
    active = [each for each in world.brokers.values() if each.core.is_active]
    assert len(active) == 1, f"controllers: {[each.broker_id for each in active]}"
    expected: dict[int, set[TopicPartition]] = {each: set() for each in world.brokers}
    for name in topics.topic_names(world.admin):
        assignment = topics.read_topics(world.admin, [name])[name]
        for key, replicas in assignment:
            for broker_id in replicas.replicas:
                expected[broker_id].add(key)
            _check_logs(world, key, str(assignment.topic_id), replicas.replicas)
    for broker_id, broker in world.brokers.items():
        held = set(broker.replicas.partitions)
        strays = [each for each in held - expected[broker_id] if not world.may_stray(each, broker_id)]
        assert held >= expected[broker_id], f"b{broker_id} has replicas of {held}, not {expected[broker_id]}"
        assert not strays, f"b{broker_id} still has replicas of {strays}"


def _check_logs(world: World, key: TopicPartition, topic_id: str, replicas: tuple[int, ...]) -> None:
    """All replicas have the same records, and all that were acknowledged, each once."""
    model = world.history.of(topic_id, key.partition, key.topic)
    if model.is_excused:
        return
    for broker_id in replicas:
        content = LogContent()
        log = world.brokers[broker_id].replicas.partitions[key].log
        content.update(log)
        model.agree(content, log.log_start_offset, model.end, f"broker {broker_id} at the end")
        assert content.end == model.end, f"b{broker_id}: {key} ends at {content.end}, not {model.end}"
        if broker_id in world.lost_power and not log.config.compact:
            check_indexes(log)
        for offset, record_id in model.acknowledged.items():
            if offset >= log.log_start_offset:
                (found,) = content.between(offset, offset + 1)
                is_there = found == record_id or (found is None and model.may_lack(offset, record_id))
                assert is_there, (
                    f"record {record_id} was acknowledged at {offset} of {key}: b{broker_id} does not have it"
                )
    # A replica that was copied to another directory or broker knows nothing of producers whose records were
    # deleted before, and takes a repeated record for a new one, as in Kafka.
    start = max(world.brokers[each].replicas.partitions[key].log.log_start_offset for each in replicas)
    # Markers may be there twice, and their ids are negative.
    ids = [
        each
        for each in model.records[max(start - model.start, 0) :]
        if isinstance(each, int) and each >= 0 and each not in world.clients.unordered
    ]
    assert len(set(ids)) == len(ids), f"records of {key} are there twice"
