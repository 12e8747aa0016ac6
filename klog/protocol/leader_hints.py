"""The current leader in an error: the tagged fields of Produce 10 and Fetch 12 and 16 (KIP-595, KIP-951)."""

from __future__ import annotations

from typing import Final, NamedTuple

from klog.protocol.message_tables import Part, Struct


class LeaderHint(NamedTuple):
    """The leader and its epoch, as far as the broker knows; -1 for unknown."""

    leader_id: int = -1
    leader_epoch: int = -1


class NodeEndpoint(NamedTuple):
    """The address of a broker that a LeaderHint names."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


NO_HINT: Final = LeaderHint()


LEADER: Final = Struct(LeaderHint, (Part("leader_id", "int32"), Part("leader_epoch", "int32")))
NODE: Final = Struct(
    NodeEndpoint,
    (
        Part("node_id", "int32"),
        Part("host", "string"),
        Part("port", "int32"),
        Part("rack", "string", nullable=True),
    ),
)
