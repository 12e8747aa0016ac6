"""Carries out the faults of a schedule."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from klog.controller.events import (
    AlterReassignments,
    ControlledShutdown,
    ElectLeaders,
    UncleanElectionEnabled,
)
from klog.formats.names import TopicPartition
from klog.metadata import configs, paths, topics
from klog.metadata.errors import MetadataError
from klog.protocol.apis import ApiKey
from klog.protocol.election_type import ElectionType
from klog.protocol.error_codes import ErrorCode
from klog.storage.log.partition_log import PartitionLog
from tests.simulation import schedule as faults
from tests.simulation.asking import Asked
from tests.simulation.schedule import Fault
from tests.simulation.scheduler import US_PER_MS
from tests.simulation.tree import TREE

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker
    from tests.simulation.world import World

_SHUTDOWN_WAIT_MS = 750
_CONFIG_DELAY_MS = 150
_MOST_PARTITIONS = 3
_DELETE_TIMEOUT_MS = 500


def apply(world: World, fault: Fault) -> None:
    """Let a fault happen now. One that makes no sense now does nothing."""
    world.note("%r", fault)
    # An invalid request of an administrator (no such topic, no such broker) must do no harm.
    with suppress(MetadataError):
        _apply(world, fault)


def _apply(world: World, fault: Fault) -> None:
    match fault:
        case faults.Crash():
            world.crash(fault.broker, power=fault.power)
            _later(world, fault.down_ms, lambda: world.start(fault.broker))
        case faults.ShutDown():
            _shut_down(world, fault)
        case faults.Pause():
            _pause(world, fault)
        case faults.Cut():
            _cut(world, fault)
        case faults.Slow():
            world.network.slow[fault.source, fault.target] = world.scheduler.now_ms + fault.for_ms
        case faults.Expire():
            broker = world.brokers.get(fault.broker)
            if broker is not None and not broker.process.paused:
                broker.session.end()
                if broker.session.connected:
                    broker.session.reconnect()
        case faults.Depose():
            world.admin.delete(paths.CONTROLLER)
        case faults.SlowController():
            active = world.active()
            if active is not None:
                for each in world.schedule.brokers:
                    link = active.process.name, f"b{each}"
                    world.network.slow[link] = world.scheduler.now_ms + fault.for_ms
        case faults.SkewClock():
            broker = world.brokers.get(fault.broker)
            if broker is not None:
                broker.wall_ahead_ms += fault.by_ms
        case faults.FailDirectory():
            world.fail_directory(fault.broker, fault.directory)
        case faults.Configure():
            _configure(world, fault)
        case faults.CreateTopic():
            world.create_topic(fault.topic, fault.replicas)
        case faults.DeleteTopic():
            topics.request_deletion(world.admin, fault.topic)
        case faults.AddPartition():
            assignment = topics.read_topics(world.admin, [fault.topic]).get(fault.topic)
            if assignment is not None and len(assignment.partitions) < _MOST_PARTITIONS:
                new = {len(assignment.partitions): fault.replicas}
                topics.add_partitions(world.admin, fault.topic, new)
        case _:
            _ask(world, fault)


def _ask(world: World, fault: Fault) -> None:
    """A request to the controller or to a leader."""
    active = world.active()
    match fault:
        case faults.DeleteRecords():
            delete_records(world, TopicPartition(fault.topic, fault.partition))
        case faults.MoveReplica():
            _move_replica(world, fault)
        case faults.Flush():
            broker = world.brokers.get(fault.broker)
            for log in [] if broker is None else broker.logs.logs():
                log.flush()
        case _ if active is None or active.process.paused:
            return
        case faults.Reassign():
            key = TopicPartition(fault.topic, fault.partition)
            active.put(AlterReassignments({key: fault.replicas or None}, _ignore))
        case faults.ElectPreferred():
            active.put(ElectLeaders(None, ElectionType.PREFERRED, _ignore))
        case faults.ElectUnclean():
            active.put(ElectLeaders(None, ElectionType.UNCLEAN, _ignore))
        case _:
            raise AssertionError(f"{fault!r} is not known")


def _ignore(_answer: object) -> None: ...


def _later(world: World, delay_ms: int, call: object) -> None:
    world.scheduler.after(delay_ms * US_PER_MS, world.server, call)  # type: ignore[arg-type]


def _shut_down(world: World, fault: faults.ShutDown) -> None:
    broker, active = world.brokers.get(fault.broker), world.active()
    if broker is None or broker.process.paused:
        return
    if active is not None:
        active.put(ControlledShutdown(broker.broker_id, broker.epoch, _ignore))

    def stop() -> None:
        if broker.process.alive and broker.process.paused:
            _later(world, _SHUTDOWN_WAIT_MS, stop)
            return
        if broker.process.alive:
            world.crash(fault.broker, power=False, clean=True)
        _later(world, fault.down_ms, lambda: world.start(fault.broker))

    _later(world, _SHUTDOWN_WAIT_MS, stop)


def _pause(world: World, fault: faults.Pause) -> None:
    broker = world.brokers.get(fault.broker)
    if broker is None or broker.process.paused:
        return
    broker.process.paused = True
    if broker.session.connected:
        broker.session.fall_silent()
    _later(world, fault.for_ms, lambda: resume(world, broker))


def resume(world: World, broker: SimulatedBroker) -> None:
    """Let a paused broker go on; it hears from the tree a little later."""
    if not broker.process.paused or not broker.process.alive:
        return
    world.note("b%d goes on", broker.broker_id)
    world.scheduler.resume(broker.process)
    _later(world, broker.random.randrange(200), lambda: reconnect(world, broker))


def reconnect(world: World, broker: SimulatedBroker) -> None:
    """Let a broker reach the tree again, if it can."""
    if (
        broker.process.alive
        and not broker.process.paused
        and not world.network.is_cut(broker.process.name, TREE)
    ):
        broker.session.reconnect()


def _cut(world: World, fault: faults.Cut) -> None:
    link = (fault.source, fault.target)
    if TREE in link:
        link = (next(each for each in link if each != TREE), TREE)
    until_ms = world.scheduler.now_ms + fault.for_ms
    world.network.cuts[link] = max(until_ms, world.network.cuts.get(link, 0))
    if TREE not in link:
        return
    broker = next((each for each in world.brokers.values() if each.process.name == link[0]), None)
    if broker is not None:
        broker.session.disconnect()
        _later(world, fault.for_ms + 1, lambda: reconnect(world, broker))


def _configure(world: World, fault: faults.Configure) -> None:
    if topics.read_topics(world.admin, [fault.topic]).get(fault.topic) is None:
        return
    world.configure(fault.topic, fault.name, fault.value)
    configs.change_config(world.admin, f"topics/{fault.topic}", world.configs[fault.topic])
    for broker in world.brokers.values():

        def changed(broker: SimulatedBroker = broker) -> None:
            broker.logs.reconfigure(fault.topic)
            if fault.name == "unclean.leader.election.enable" and fault.value == "true":
                broker.put(UncleanElectionEnabled(fault.topic))

        broker.after(world.random.randrange(_CONFIG_DELAY_MS) * US_PER_MS, changed)


def _move_replica(world: World, fault: faults.MoveReplica) -> None:
    key = TopicPartition(fault.topic, fault.partition)
    broker = world.brokers.get(fault.broker)
    log = None if broker is None else broker.logs.get(key)
    if broker is None or log is None or broker.process.paused:
        return
    others = [each for each in broker.disk.directories if not log.directory.startswith(each)]
    if others:
        moved = broker.log_dir_moves.alter({key: others[0]})[key] is ErrorCode.NONE
        world.counts["moves"] += moved


def delete_records(world: World, key: TopicPartition) -> None:
    """Ask the leader to delete the older half of what is committed."""
    for broker in world.brokers.values():
        partition = broker.replicas.partitions.get(key)
        if partition is not None and partition.state.is_leader and not broker.process.paused:
            log = partition.log
            offset = (log.log_start_offset + log.high_watermark) // 2
            model = world.history.of(str(log.topic_id), key.partition, key.topic)
            model.deleted_to = max(model.deleted_to, offset)
            _delete_records_of(broker, key, log, offset)
            return


def _delete_records_of(broker: SimulatedBroker, key: TopicPartition, log: PartitionLog, offset: int) -> None:
    partition = {"partition_index": key.partition, "offset": offset}
    topic = {"name": key.topic, "partitions": (partition,)}
    timeout = timedelta(milliseconds=_DELETE_TIMEOUT_MS)

    def answered(answer: Any) -> None:
        if answer.topics[0].partitions[0].error_code is ErrorCode.NONE:
            broker.world.counts["deletions"] += 1
            broker.world.deletions.setdefault(log, []).append(offset)

    Asked(ApiKey.DELETE_RECORDS, topics=(topic,), timeout=timeout).serve(broker, answered)
