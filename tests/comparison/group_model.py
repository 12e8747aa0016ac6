"""What the answers have said of a group, and what the requests of its members are made of."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from typing import Any, Final

from klog.protocol.apis import SERVED, ApiKey

MAX_SIZE: Final = 5
TOPICS: Final = {"t1": 3, "t2": 1}


def version_of(chance: random.Random, api: ApiKey, first: int = 0) -> int:
    """A version of those that both brokers announce."""
    return chance.randint(max(first, SERVED[api].min_version), SERVED[api].max_version)


def subscription(*topics: str) -> bytes:
    """The metadata of a consumer, version 0."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


@dataclass
class GroupModel:
    """What the answers have said of a group. Members are their symbols."""

    name: str
    state: str = "Dead"
    generation: int = 0
    leader: str = ""
    protocol_name: str = "range"
    members: dict[str, str | None] = field(default_factory=dict)  # with their instance ids
    homes: dict[str, str] = field(default_factory=dict)  # the connection that a member used last
    pending: dict[str, str] = field(default_factory=dict)  # ids that were handed out, with the connection

    def learn(self, described: dict[str, Any]) -> None:
        """Takes what DescribeGroups says."""
        self.state = described["group_state"]
        self.members = {each["member_id"]: each.get("group_instance_id") for each in described["members"]}
        for each in described["members"]:
            self.homes.setdefault(each["member_id"], each["client_id"])
            self.pending.pop(each["member_id"], None)
        if len(self.members) == 1:
            (self.leader,) = self.members

    def may_lose(self, *members: str) -> bool:
        """Whether it is certain who leads when these have gone."""
        return self.leader not in members or len(self.members) <= 2
