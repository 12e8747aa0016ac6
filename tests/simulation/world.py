"""The simulated cluster: brokers, the tree, the network, clients, and what happens to them."""

from __future__ import annotations

import errno
import os
import tempfile
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any

from klog.config.topic import TopicConfig, default_topic_config
from klog.controller.settings import ControllerSettings
from klog.formats.names import TopicPartition
from klog.metadata import paths, topics, znodes
from klog.metadata.errors import MetadataError
from klog.metadata.local import SharedTree
from klog.metadata.topics import new_topic_id
from klog.metadata.tree import Commit
from klog.replication.partition import Partition
from klog.server.counters.request_times import RequestCounters
from klog.server.peers.controller_times import ControllerTimes
from klog.storage.log.partition_log import PartitionLog
from tests.metadata.memory_tree import MemorySession, NoJournal
from tests.simulation.broker import SimulatedBroker
from tests.simulation.cleaning_loop import CleaningLoop, Threads
from tests.simulation.clients import Clients
from tests.simulation.coordinators import INTERNAL
from tests.simulation.disk import Disk
from tests.simulation.history import Committed, History, Seen
from tests.simulation.network import Network
from tests.simulation.outcomes import Outcomes
from tests.simulation.schedule import Schedule
from tests.simulation.scheduler import US_PER_MS, Process, Scheduler, stream
from tests.simulation.tree import TREE

_START_RETRY_MS = 250
_TRACE_LINES = 400
# How long the removal of a replica may take from its first step on.
_REMOVAL_MS = 5_000
# What is kept longer is not deleted in a schedule, unless a clock is set.
_LONG_MS = 3_600_000


class WatchedTree(SharedTree):
    """The tree, which shows every state of a partition that a controller writes to the history."""

    world: World

    def _notify(self, commit: Commit) -> None:
        for event in commit.events:
            if event.path.startswith(paths.TOPICS):
                if event.path.endswith("/state"):
                    self.world.note_state(event.path)
                elif event.path.rpartition("/")[0] == paths.TOPICS:
                    self.world.note_assignment(event.path.rpartition("/")[2])
        super()._notify(commit)


class World:
    """One run of a schedule."""

    def __init__(self, schedule: Schedule, directory: str, defects: list[BaseException]) -> None:
        """`defects` are errors that brokers log, and after which they go on."""
        self.schedule = schedule
        self._defects = defects
        self.outcomes = Outcomes()
        self.history = History(self.outcomes.is_committed, self.has_retention)
        self.counts: Counter[str] = Counter()
        # Nobody reads them, and they take long to make.
        self.request_counters = RequestCounters()
        self.trace: deque[str] = deque(maxlen=_TRACE_LINES)
        self.server = Process(TREE)
        self.scheduler = Scheduler(self._after)
        self.network = Network(self.scheduler, schedule.seed, schedule.loss)
        self.shared = WatchedTree(NoJournal(), lambda: self.scheduler.now_ms)
        self.shared.world = self
        self.admin = MemorySession(self.shared, lambda _deliveries: None)
        self.settings = ControllerSettings(broker_id=-1)
        self.times = ControllerTimes()
        self.configs: dict[str, dict[str, str]] = {}
        counts = {name: len(replicas) for name, replicas, _ in schedule.topics if name in INTERNAL}
        self.has_coordinators = bool(counts)
        self.internal_partitions = {name: counts.get(name, 1) for name in INTERNAL}
        self._topic_configs: dict[str, TopicConfig] = {}
        self.brokers: dict[int, SimulatedBroker] = {}
        self.cleaners = Threads()
        self._cleanings: list[CleaningLoop] = []
        self._by_process: dict[Process, SimulatedBroker] = {}
        # The ends of the logs of brokers that are down.
        self.left_behind: dict[int, dict[tuple[str, TopicPartition], int]] = {}
        self._models: dict[TopicPartition, Committed] = {}
        self._assigned: dict[TopicPartition, tuple[int, ...]] = {}
        self.removals: dict[tuple[TopicPartition, int], int] = {}
        self.registered_ms: dict[int, list[int]] = {each: [] for each in schedule.brokers}
        self.elected_ms: list[int] = []
        self.starts = 0
        self.is_calm = False
        self.failing: set[str] = set()
        self.lost_power: set[int] = set()
        # Where leaders have said that DeleteRecords has deleted what is below. A log that is loaded again may
        # have forgotten it.
        self.deletions: dict[PartitionLog, list[int]] = {}
        self._topics_created = 0
        self._controllers: dict[int, int] = {}
        self.disks = {
            each: Disk(os.path.join(directory, f"b{each}"), schedule.log_dirs) for each in schedule.brokers
        }
        self.random = stream(schedule.seed, "world")
        self.clients = Clients(self)

    def note(self, what: str, *values: object) -> None:
        """A line of the trace."""
        time_ms = self.scheduler.now_ms - 1_000_000
        self.trace.append(f"{time_ms:>6} ms  {what % values}")

    # -- brokers ---------------------------------------------------------------------------------------------

    def start(self, broker_id: int) -> None:
        """Start a broker, again and again until it is registered."""
        if broker_id in self.brokers:
            return
        if not self.history.may_start(broker_id) or self.network.is_cut(f"b{broker_id}", TREE):
            self._later(_START_RETRY_MS, lambda: self.start(broker_id))
            return
        self.starts += 1
        try:
            broker = SimulatedBroker(self, broker_id, self.disks[broker_id])
        except MetadataError as error:
            self.note("b%d cannot start: %s", broker_id, error)
            self._later(_START_RETRY_MS, lambda: self.start(broker_id))
            return
        self.note("b%d starts, epoch %d", broker_id, broker.epoch)
        self.left_behind.pop(broker_id, None)
        self.failing.difference_update(broker.disk.directories)
        self.brokers[broker_id] = broker
        self._cleanings.append(broker.cleaning)
        self._by_process[broker.process] = broker
        self.counts["starts"] += 1

    def close(self) -> None:
        """Everything ends."""
        for broker in self.brokers.values():
            broker.end()
        for cleaning in self._cleanings:
            cleaning.close()
        self.cleaners.close()
        self.scheduler.close()

    def crash(self, broker_id: int, *, power: bool, clean: bool = False) -> None:
        """End a broker's process."""
        broker = self.brokers.pop(broker_id, None)
        if broker is None:
            return
        del self._by_process[broker.process]
        logs = broker.logs.logs()
        if clean:
            broker.process.end()
            broker.cleaning.stop()
            broker.logs.stop()
            broker.session.close()
        else:
            damage = broker.disk.will_lose(logs, self.random) if power else ()
            broker.session.disconnect()
            broker.end()
            for each in damage:
                each()
            if power:
                self.lost_power.add(broker_id)
                self.history.power_lost(broker_id, {(str(log.topic_id), log.partition[1]) for log in logs})
        self.leave_behind(broker_id, logs, are_whole=not power)
        self.note("b%d ends (%s)", broker_id, "power" if power else "clean" if clean else "killed")

    def leave_behind(self, broker_id: int, logs: Iterable[PartitionLog], *, are_whole: bool) -> None:
        """Note what a broker has on its disks while it does not serve it."""
        left = self.left_behind.setdefault(broker_id, {})
        for log in logs:
            left[str(log.topic_id), log.partition] = log.log_end_offset if are_whole else 0

    def fail_directory(self, broker_id: int, number: int) -> None:
        """The disk of a log directory fails, until the broker starts again."""
        broker = self.brokers.get(broker_id)
        if broker is not None and not broker.process.paused and number < len(broker.disk.directories):
            path = broker.disk.directories[number]
            logs = [log for log in broker.logs.logs() if log.directory.startswith(path)]
            self.leave_behind(broker_id, logs, are_whole=True)
            self.failing.add(path)
            self.counts["failed directories"] += 1
            broker.logs.directory_failed(path, OSError(errno.EIO, os.strerror(errno.EIO), path))

    def _later(self, delay_ms: int, call: Any) -> None:
        self.scheduler.after(delay_ms * US_PER_MS, self.server, call)

    def active(self) -> SimulatedBroker | None:
        """The active controller; of several, the one with the latest epoch."""
        active = [each for each in self.brokers.values() if each.core.active is not None]
        return max(active, key=lambda each: each.core.active.fenced.epoch, default=None)  # type: ignore[union-attr]

    # -- topics ----------------------------------------------------------------------------------------------

    def topic_config(self, topic: str) -> TopicConfig:
        if topic not in self._topic_configs:
            self._topic_configs[topic] = default_topic_config(self.configs.get(topic, {}))
        return self._topic_configs[topic]

    def has_retention(self, topic: str) -> bool:
        """Whether records of a topic are deleted by their size or age within the time of a schedule."""
        config = self.topic_config(topic)
        return config.delete and (config.retention_bytes >= 0 or self.keeps_shortly(config))

    @staticmethod
    def keeps_shortly(config: TopicConfig) -> bool:
        """Whether records are deleted by their age within the time of a schedule."""
        return 0 <= config.retention_ms < _LONG_MS

    def _check_ages(
        self, broker: SimulatedBroker, partition: Partition, model: Committed, start: int
    ) -> None:
        """A leader has deleted records from `start` on because of their age, by its own clock.

        One that does not know yet that an unclean leader has replaced it has other records than these.
        """
        if partition.state.leader_epoch < model.since_epoch:
            return
        config, log = partition.log.config, partition.log
        if start < 0 or config.retention_bytes >= 0 or not self.keeps_shortly(config):
            return
        for offset in range(max(start, model.start, model.deleted_to), min(log.log_start_offset, model.end)):
            created_ms = self.clients.created_ms.get(model.records[offset - model.start])
            assert created_ms is None or broker.wall_ms() - created_ms > config.retention_ms, (
                f"b{broker.broker_id} deletes the record at {offset} of {partition.topic_partition} after"
                f" {broker.wall_ms() - created_ms} ms"
            )

    def create_topic(self, name: str, replicas: Sequence[Sequence[int]]) -> None:
        self._topics_created += 1
        number = self._topics_created
        topic_id = new_topic_id(lambda count: number.to_bytes(count, "big"))
        assignment = dict(enumerate(replicas))
        config = self.configs.get(name, {})
        topics.create_topic(self.admin, name, topic_id, assignment, config, set(self.schedule.brokers))
        self.note("topic %s is created: %s", name, assignment)

    def configure(self, topic: str, name: str, value: str) -> None:
        self.configs[topic] = {**self.configs.get(topic, {}), name: value}
        self._topic_configs.pop(topic, None)

    def model_of(self, key: TopicPartition) -> Committed | None:
        """What is known of a partition, by the topic's present id; None if it has no leader yet."""
        return self._models.get(key)

    # -- what is checked -------------------------------------------------------------------------------------

    def note_state(self, path: str) -> None:
        """A partition's state was written."""
        parts = path.split("/")
        topic, number = parts[3], int(parts[5])
        node = self.shared.tree.find(path)
        if node is None:
            return
        written = znodes.decode_partition_state(TopicPartition(topic, number), node)
        assignment = topics.read_topics(self.admin, [topic])[topic]
        state = written.leader_and_isr
        self.note(
            "tree: %s-%d leader %d epoch %d ISR %s (version %d, controller epoch %d)",
            topic, number, state.leader, state.leader_epoch, state.isr, state.partition_epoch,
            written.controller_epoch,
        )  # fmt: skip
        topic_id = str(assignment.topic_id)
        self.history.state_written(topic_id, topic, number, state)
        self._models[TopicPartition(topic, number)] = self.history.of(topic_id, number, topic)

    def note_assignment(self, topic: str) -> None:
        """A topic's replicas have changed: note who is not a replica any more, and since when."""
        assignment = topics.read_topics(self.admin, [topic]).get(topic)
        for key, replicas in () if assignment is None else assignment:
            for broker_id in set(self._assigned.get(key, ())) - set(replicas.replicas):
                self.removals[key, broker_id] = self.scheduler.now_ms
            self._assigned[key] = replicas.replicas

    def may_stray(self, key: TopicPartition, broker_id: int) -> bool:
        """Whether a broker may have kept a replica that was moved away.

        The controller tells those brokers that are alive. One that is away keeps the replica for good, as in
        Kafka with ZooKeeper. So does one that the controller did not reach before it was replaced: the next
        one does not know of the replica.
        """
        removed_ms = self.removals.get((key, broker_id))
        if removed_ms is None:
            return False
        return any(
            each >= removed_ms - _REMOVAL_MS for each in (*self.registered_ms[broker_id], *self.elected_ms)
        )

    def is_stray(self, key: TopicPartition, broker_id: int) -> bool:
        """Whether a broker may have kept a replica, and is not to have one."""
        return broker_id not in self._assigned.get(key, ()) and self.may_stray(key, broker_id)

    def note_controller(self, broker: SimulatedBroker) -> None:
        """At most one broker is controller in an epoch."""
        active = broker.core.active
        if active is not None:
            epoch = active.fenced.epoch
            if epoch not in self._controllers:
                self.elected_ms.append(self.scheduler.now_ms)
            known = self._controllers.setdefault(epoch, broker.broker_id)
            assert known == broker.broker_id, (
                f"b{known} and b{broker.broker_id} have controller epoch {epoch}"
            )

    def _after(self, process: Process) -> None:
        for defect in self._defects:
            raise defect
        broker = self._by_process.get(process)
        if broker is None:
            return
        last_seen = broker.seen
        for key, partition in broker.replicas.partitions.items():
            seen, log = last_seen.get(key), partition.log
            # Most steps change nothing, or one partition.
            if (
                seen is None
                or seen.state is not partition.state
                or seen.partition is not partition
                or seen.end != log.log_end_offset
                or seen.high_watermark != log.high_watermark
                or seen.start != log.log_start_offset
            ):
                self._check(broker, key, partition)

    def _check(self, broker: SimulatedBroker, key: tuple[str, int], partition: Partition) -> None:
        seen = broker.seen.get(key)
        if seen is None or seen.partition is not partition:
            seen = broker.seen[key] = Seen(partition)
        start, is_leader = seen.start, seen.is_leader and seen.epoch == partition.state.leader_epoch
        model = self.history.check(broker.broker_id, partition, seen)
        if model is not None and is_leader and seen.start != start:
            self._check_ages(broker, partition, model, start)
        if model is not None and self.history.may_check_isr(model, broker.broker_id):
            self.history.check_isr(model, self._ends(model.topic_id, partition))

    def _ends(self, topic_id: str, partition: Partition) -> dict[int, int]:
        key = partition.topic_partition
        ends = {}
        for broker_id in partition.state.assignment.replicas:
            broker = self.brokers.get(broker_id)
            log = None if broker is None else broker.logs.get(key)
            if log is None:
                ends[broker_id] = self.left_behind.get(broker_id, {}).get((topic_id, key), 0)
            else:
                ends[broker_id] = log.log_end_offset if str(log.topic_id) == topic_id else 0
        return ends

    def acknowledged(self, broker: SimulatedBroker, key: TopicPartition, offset: int, record_id: int) -> None:
        """A broker acknowledges a record to a producer that wants all replicas to have it."""
        partition = broker.replicas.partitions[key]
        assert partition.state.is_leader, (
            f"b{broker.broker_id} acknowledges {offset} of {key}, which it does not lead"
        )
        # The step is still under way.
        self._check(broker, key, partition)
        self.counts["acknowledged"] += 1
        if self.outcomes.may_repeat(record_id):
            return
        model = self.history.of(str(partition.log.topic_id), key.partition, key.topic)
        self.history.acknowledge(model, broker.broker_id, partition.state.leader_epoch, offset, record_id)


def directory() -> tempfile.TemporaryDirectory[str]:
    """A directory for the disks of one run."""
    from tests.simulation.disk import memory_backed

    return tempfile.TemporaryDirectory(prefix="klog-simulation-", dir=memory_backed())
