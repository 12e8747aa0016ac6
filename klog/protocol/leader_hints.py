"""The current leader in an error: the tagged fields of Produce 10 and Fetch 12 and 16 (KIP-595, KIP-951)."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from klog.protocol.message_tables import Part, Struct
from klog.protocol.primitives import write_bytes_size, write_string, write_tags

_LEADER: Final = struct.Struct(">ii")
_INT32: Final = struct.Struct(">i")


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


def leader_tag(leader: LeaderHint) -> bytes:
    """The value of a tagged field that holds a leader."""
    return _LEADER.pack(*leader) + b"\0"


def nodes_tag(tag: int, nodes: tuple[NodeEndpoint, ...]) -> bytes:
    """A response's closing section of tagged fields with the nodes in it (empty without nodes)."""
    if not nodes:
        return b"\0"
    parts = [write_bytes_size(len(nodes), True)]
    for node in nodes:
        parts += (
            _INT32.pack(node.node_id),
            write_string(node.host, True),
            _INT32.pack(node.port),
            write_string(node.rack, True),
            b"\0",
        )
    return write_tags([(tag, b"".join(parts))])


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
