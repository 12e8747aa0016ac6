"""One interface for the consumers of confluent-kafka, kafka-python and aiokafka that are members of a group.

`Member` reads in a thread of its own, commits all that it has read when it closes, and keeps what it read and
which partitions it was assigned.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

import aiokafka
import confluent_kafka
import kafka

from tests.waiting import eventually

# Long enough for a busy machine. No test waits until a session has expired.
SESSION_MS = 30_000
_REBALANCE_MS = 5_000
_COMMIT_TRIES = 100
Assignors = tuple[str, ...]


class Member:
    """A consumer that subscribes. `read` holds values, `assigned` the partitions that it holds now."""

    def __init__(self, servers: str, topic: str, group: str, **options: object) -> None:
        self.read: list[bytes] = []
        self.assigned: set[int] = set()
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._guarded, args=(servers, topic, group, options), daemon=True
        )
        self._thread.start()

    def _guarded(self, *args: object) -> None:
        try:
            self._run(*args)
        except BaseException as failure:
            self.failure = failure

    def _run(self, servers: str, topic: str, group: str, options: dict[str, object]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Commit, leave the group, and end."""
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure

    def await_partitions(self, *numbers: int) -> None:
        """Wait until it holds these partitions."""
        eventually(lambda: self.failure or self.assigned == set(numbers))
        assert self.failure is None


class ConfluentMember(Member):
    """librdkafka."""

    assignors = "range", "roundrobin", "cooperative-sticky"

    def _run(self, servers, topic, group, options) -> None:
        config = {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            # A member hears of a rebalance by its next heartbeat.
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": options.get("assignor", "range"),
        }
        if "instance" in options:
            config["group.instance.id"] = options["instance"]
        consumer = confluent_kafka.Consumer(config)
        consumer.subscribe([topic])
        while not self._stop.is_set():
            message = consumer.poll(0.05)
            self.assigned = {each.partition for each in consumer.assignment()}
            if message is not None and message.error() is None:
                self.read.append(message.value())
        with suppress(confluent_kafka.KafkaException):  # it has read nothing of what it holds now
            consumer.commit(asynchronous=False)
        consumer.close()


class KafkaPythonMember(Member):
    """kafka-python."""

    assignors = "range", "roundrobin", "sticky"

    def _run(self, servers, topic, group, options) -> None:
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
        from kafka.errors import CommitFailedError, RebalanceInProgressError

        by_name = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "sticky": StickyPartitionAssignor,
        }
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            group_instance_id=options.get("instance"),
            partition_assignment_strategy=[by_name[options.get("assignor", "range")]],
        )
        member = self

        class Rebalances(kafka.ConsumerRebalanceListener):
            under_way = True

            def on_partitions_revoked(self, revoked) -> None:
                self.under_way = True

            def on_partitions_assigned(self, assigned) -> None:
                self.under_way = False
                member.assigned = {each.partition for each in assigned}

        rebalances = Rebalances()
        consumer.subscribe([topic], listener=rebalances)
        # A leader of a group that hears of the topic's partitions later joins again. If a poll ends meanwhile
        # because it has records, kafka-python 3.0 never ends that join, and refuses all commits.
        consumer.topics()
        while not self._stop.is_set():
            # If a poll of kafka-python 3.0 ends before the member has joined, the next one joins again. If
            # all polls are shorter than a rebalance, the group never comes to rest.
            timeout_ms = _REBALANCE_MS if rebalances.under_way else 1_000
            for records in consumer.poll(timeout_ms=timeout_ms).values():
                self.read += (record.value for record in records)
        for _ in range(_COMMIT_TRIES):
            try:
                consumer.commit()
                break
            except (RebalanceInProgressError, CommitFailedError):
                consumer.poll(timeout_ms=100)  # a member joins again in poll
        else:
            raise AssertionError("kafka-python did not commit")
        consumer.close()


class AioKafkaMember(Member):
    """aiokafka."""

    assignors = "range", "roundrobin", "sticky"

    def _run(self, servers, topic, group, options) -> None:
        asyncio.run(self._consume(servers, topic, group, options))

    async def _consume(self, servers, topic, group, options) -> None:
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        by_name = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "sticky": StickyPartitionAssignor,
        }
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            group_instance_id=options.get("instance"),
            partition_assignment_strategy=[by_name[options.get("assignor", "range")]],
        )
        await consumer.start()
        while not self._stop.is_set():
            for records in (await consumer.getmany(timeout_ms=50)).values():
                self.read += (record.value for record in records)
            self.assigned = {each.partition for each in consumer.assignment()}
        if self.read:
            await consumer.commit()
        await consumer.stop()


MEMBERS: dict[str, Callable[..., Member]] = {
    "confluent-kafka": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AioKafkaMember,
}
