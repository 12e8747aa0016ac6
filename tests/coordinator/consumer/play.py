"""Plays heartbeats to a consumer group: carries out its effects, keeps its records, and moves a clock."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from klog.coordinator.groups.consumer.group import ConsumerGroup
from klog.coordinator.groups.consumer.records import (
    ConsumerRecord,
    read_key,
    read_value,
    write_key,
    write_value,
)
from klog.coordinator.groups.consumer.state import GroupRecords
from klog.coordinator.groups.consumer.topics import Topics
from klog.coordinator.groups.consumer.values import (
    NO_PARTITIONS,
    ConsumerGroupSettings,
    HeartbeatRequest,
    HeartbeatResult,
    Partitions,
)
from klog.coordinator.groups.consumer.writes import WriteRecords
from klog.coordinator.groups.values import (
    Identity,
    JoinRequest,
    JoinResult,
    SyncRequest,
    SyncResult,
)
from klog.metadata.cache import ClusterSnapshot
from klog.protocol.error_codes import ErrorCode
from klog.protocol.interbroker.update_metadata import UpdateMetadataPartitionState
from tests.coordinator.playing import GroupPlay

SETTINGS = ConsumerGroupSettings(session_timeout_ms=45_000, max_size=100)
REBALANCE_MS = 60_000


def topic_id(name: str) -> str:
    """An id that belongs to the name."""
    return base64.urlsafe_b64encode(name.encode().ljust(16, b"\1")).decode().rstrip("=")


def cluster(partitions: Mapping[str, int], known_ids: Mapping[str, str] | None = None) -> Topics:
    """A cluster with these topics."""
    state = UpdateMetadataPartitionState(
        partition_index=0, controller_epoch=1, leader=0, leader_epoch=0, isr=(1,), zk_version=0, replicas=(1,)
    )
    ids = {name: (known_ids or {}).get(name, topic_id(name)) for name in partitions}
    return Topics(
        ClusterSnapshot(
            {name: dict.fromkeys(range(count), state) for name, count in partitions.items()},
            ids,
            {each: name for name, each in ids.items()},
        )
    )


def of(name: str, *numbers: int) -> Partitions:
    """Partitions of a topic."""
    return frozenset((topic_id(name), number) for number in numbers)


class Play(GroupPlay):
    """A consumer group with a clock."""

    def __init__(
        self, partitions: Mapping[str, int] | None = None, settings: ConsumerGroupSettings = SETTINGS
    ) -> None:
        self.topics = cluster({"t": 4} if partitions is None else partitions)
        self.settings = settings
        self.log: list[tuple[bytes, bytes | None]] = []
        self.batches: list[tuple[ConsumerRecord, ...]] = []
        super().__init__(self.new_group(GroupRecords()), 1_000)

    def new_group(self, records: GroupRecords) -> ConsumerGroup:
        return ConsumerGroup("g", lambda: self.settings, lambda: self.topics, records)

    def keep(self, effect: WriteRecords) -> None:
        self.batches.append(effect.records)
        for record in effect.records:
            value = None if record.value is None else write_value(record.value)
            self.log.append((write_key("g", record.kind, record.name), value))

    def write_held(self) -> None:
        held, self.held = self.held, []
        for effect in held:
            self.write(effect)
        self.settle()

    def loaded(self) -> GroupRecords:
        """The group as another coordinator reads it from the log."""
        records = GroupRecords()
        for raw_key, raw_value in self.log:
            key = read_key(raw_key)
            if key is not None:
                value = None if raw_value is None else read_value(key, raw_value)
                records.apply(ConsumerRecord(key.kind, key.name, value))
        return records

    def restart(self) -> None:
        """Another coordinator loads the group."""
        self.group = self.new_group(self.loaded())
        self.timers.clear()
        self.group.start_loaded(self.now)
        self.settle()

    # -- requests --------------------------------------------------------------------------------------------

    def send(self, asked: HeartbeatRequest) -> list[HeartbeatResult]:
        results: list[HeartbeatResult] = []
        self.group.consumer_heartbeat(asked, results.append, self.now)
        self.settle()
        return results

    def join_classic(self, member_id: str, topics: tuple[str, ...] = ("t",), **values: Any) -> JoinResult:
        results: list[JoinResult] = []
        owned = values.pop("owned", NO_PARTITIONS)
        asked = JoinRequest(
            **{
                "member_id": member_id,
                "new_member_id": "new",
                "client_id": "c",
                "client_host": "/h",
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": REBALANCE_MS,
                "protocol_type": "consumer",
                "protocols": (("range", subscription(topics, owned)),),
                **values,
            }
        )
        self.group.join(asked, results.append, self.now)
        self.settle()
        return results[0]

    def sync_classic(self, joined: JoinResult) -> SyncResult:
        results: list[SyncResult] = []
        identity = Identity(joined.member_id, joined.generation_id)
        self.group.sync(SyncRequest(identity), results.append, self.now)
        self.settle()
        return results[0]


def subscription(topics: tuple[str, ...], owned: Partitions = NO_PARTITIONS, version: int = 1) -> bytes:
    """A subscription of the classic protocol."""

    def text(name: str) -> bytes:
        return len(name).to_bytes(2, "big") + name.encode()

    parts = [version.to_bytes(2, "big"), len(topics).to_bytes(4, "big"), *map(text, topics)]
    parts.append((-1).to_bytes(4, "big", signed=True))
    if version >= 1:
        names = {topic_id(topic): topic for topic in topics}
        parts.append(len(owned).to_bytes(4, "big"))
        for each, number in sorted(owned):
            parts += (text(names[each]), (1).to_bytes(4, "big"), number.to_bytes(4, "big"))
    return b"".join(parts)


class Client:
    """A member that behaves: it gives up and takes what it is told, and joins again if it is fenced."""

    def __init__(
        self, play: Play, name: str, topics: tuple[str, ...] = ("t",), regex: str = "", **values: Any
    ) -> None:
        self.play = play
        self.epoch = 0
        self.owned: Partitions = NO_PARTITIONS
        self.error = ErrorCode.NONE
        self.tells_all = True  # in the next heartbeat, because it does not know what the group knows
        self.full = HeartbeatRequest(
            name,
            0,
            rebalance_timeout_ms=REBALANCE_MS,
            topics=topics,
            regex=regex,
            owned=NO_PARTITIONS,
            **values,
        )

    @property
    def name(self) -> str:
        return self.full.member_id

    def beat(self) -> HeartbeatResult:
        """One heartbeat."""
        asked = replace(self.full, member_epoch=self.epoch, owned=self.owned)
        if self.epoch and not self.tells_all:
            asked = HeartbeatRequest(
                self.name,
                self.epoch,
                self.full.instance_id,
                owned=self.owned,
                client_id=asked.client_id,
                describable=asked.describable,
            )
        (result,) = self.play.send(asked)
        self.take(result)
        return result

    def take(self, result: HeartbeatResult) -> None:
        self.error = result.error
        self.tells_all = bool(result.error)
        if result.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.owned = 0, NO_PARTITIONS
        elif not result.error:
            self.epoch = result.member_epoch
            if result.assignment is not None:
                self.owned = result.assignment

    def change(self, **values: Any) -> HeartbeatResult:
        """Say something new."""
        self.full = replace(self.full, **values)
        if self.tells_all:
            return self.beat()
        (result,) = self.play.send(
            HeartbeatRequest(self.name, self.epoch, self.full.instance_id, owned=self.owned, **values)
        )
        self.take(result)
        return result

    def leave(self, epoch: int = -1) -> HeartbeatResult:
        (result,) = self.play.send(HeartbeatRequest(self.name, epoch, self.full.instance_id))
        self.epoch, self.owned = 0, NO_PARTITIONS
        return result


def settle(*clients: Client, rounds: int = 12) -> None:
    """Everybody sends heartbeats until nothing changes any more."""
    for _ in range(rounds):
        before = [(each.epoch, each.owned) for each in clients]
        for each in clients:
            each.beat()
        if before == [(each.epoch, each.owned) for each in clients]:
            return
    raise AssertionError("the members do not come to rest")
