"""A broker that coordinates groups, its handlers, and a clock: requests in, answers out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from klog.config.broker import BrokerConfig
from klog.coordinator.groups.coordinator import GroupCoordinator
from klog.coordinator.groups.requests import GroupRequests
from klog.coordinator.groups.transactional_offsets import OnVerified, TransactionalCommits
from klog.coordinator.transactions.values import Producer
from klog.formats.names import CONSUMER_OFFSETS
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.replication.internal_append import InternalAppends
from klog.server.coordinators.groups import open_groups
from klog.server.handlers.groups.administration import GroupsHandler
from klog.server.handlers.groups.members import MembersHandler
from klog.server.handlers.groups.offsets import OffsetsHandler
from klog.server.handlers.groups.transactional_offsets import TransactionalOffsetsHandler
from klog.server.handlers.groups.tree_offsets import TreeOffsets
from klog.storage.log.verification import UNCHECKED
from tests.server.handlers.admin_parts import AdminCluster
from tests.server.handlers.parts import Broker, FakeRequest, answer_of, request_of
from tests.waiting import eventually

PARTITIONS = 3
TOPIC_ID = "b2Zmc2V0cy10b3BpYy1pZA"


class GroupBroker(Broker):
    """Leads all partitions of `__consumer_offsets`, and those of topic `t`."""

    def __init__(
        self,
        root: Path,
        properties: dict[str, str] | None = None,
        *,
        lead: bool = True,
        min_insync_replicas: int = 1,
    ) -> None:
        offsets = {"cleanup.policy": "compact", "min.insync.replicas": str(min_insync_replicas)}
        super().__init__(root, {CONSUMER_OFFSETS: offsets})
        config = BrokerConfig(
            {
                "broker.id": "1",
                "offsets.topic.num.partitions": str(PARTITIONS),
                "group.min.session.timeout.ms": "100",
                **(properties or {}),
            }
        )
        appends = InternalAppends(
            self.replicas,
            self.produce_purgatory,
            self.lookup.known,
            clock_ms=self.clock,
            timer_ms=self.clock,
        )
        self.group_configs: dict[str, dict[str, int]] = {}
        self.store = AdminCluster().store
        self.coordinator: GroupCoordinator = open_groups(
            config,
            self.store,
            self.replicas,
            appends,
            self.timer,
            lambda: self.lookup.metadata.snapshot,
            lambda group_id: self.group_configs.get(group_id, {}),
        )
        requests = GroupRequests(self.coordinator)
        self._ids = 0
        members = MembersHandler(requests, self._member_id)
        tree_offsets = TreeOffsets(
            self.store, self.lookup.known, self.coordinator.settings.max_metadata_bytes
        )
        offsets = OffsetsHandler(requests, tree_offsets, self.lookup.known, self.clock)
        # What the transaction coordinator says of offsets; if a list, it says so when the test asks.
        self.verify_error = ErrorCode.NONE
        self.verifying: list[OnVerified] | None = None
        self.verified: list[tuple[int, str, Producer]] = []
        transactional = TransactionalOffsetsHandler(
            TransactionalCommits(requests, self._verify), self.lookup.known, self.clock
        )
        groups = GroupsHandler(requests)
        self.handlers = {
            ApiKey.JOIN_GROUP: members.join,
            ApiKey.SYNC_GROUP: members.sync,
            ApiKey.HEARTBEAT: members.heartbeat,
            ApiKey.LEAVE_GROUP: members.leave,
            ApiKey.OFFSET_COMMIT: offsets.commit,
            ApiKey.OFFSET_FETCH: offsets.fetch,
            ApiKey.OFFSET_DELETE: offsets.delete,
            ApiKey.TXN_OFFSET_COMMIT: transactional.commit,
            ApiKey.DESCRIBE_GROUPS: groups.describe,
            ApiKey.LIST_GROUPS: groups.list,
            ApiKey.DELETE_GROUPS: groups.delete,
        }
        self.lead()
        if lead:
            self.lead_offsets()

    def _member_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}-{self._ids}"

    def _verify(self, partition: int, transactional_id: str, producer: Producer, on_done: OnVerified) -> None:
        self.verified.append((partition, transactional_id, producer))
        if self.verifying is None:
            on_done(self.verify_error, UNCHECKED)
        else:
            self.verifying.append(on_done)

    def lead_offsets(self, *, epoch: int = 0, **values: Any) -> None:
        """Lead every partition of the internal topic, and load it."""
        for number in range(PARTITIONS):
            self.lead(CONSUMER_OFFSETS, number, epoch=epoch, topic_id=TOPIC_ID, **values)
        self.await_loaded()

    def await_loaded(self) -> None:
        eventually(lambda: len(self.coordinator.owned()) == PARTITIONS)

    def send(self, api: ApiKey, version: int, /, **values: Any) -> FakeRequest:
        """Has a request handled; its answer may still be to come."""
        request = request_of(api, version, **values)
        self.handlers[api](request)
        return request

    def ask(self, api: ApiKey, version: int, /, **values: Any) -> Any:
        """The answer to a request that is answered at once."""
        return answer_of(self.send(api, version, **values))
