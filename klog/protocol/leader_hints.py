"""The current leader in an error: the tagged fields of Produce 10 and Fetch 12 and 16 (KIP-595, KIP-951)."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from klog.protocol.primitives import (
    Buffer,
    end_of,
    read_int32,
    read_items,
    read_name,
    read_string,
    read_tags,
    write_bytes_size,
    write_string,
    write_tags,
)

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


def leader_of_tag(body: Buffer, start: int | None) -> LeaderHint:
    """The leader at a tagged field's value; none if the field is absent. Raises MalformedMessageError."""
    if start is None:
        return NO_HINT
    end_of(body, start, _LEADER.size)
    return LeaderHint(*_LEADER.unpack_from(body, start))


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


def endpoints_of_tag(body: Buffer, start: int | None) -> tuple[NodeEndpoint, ...]:
    """The nodes at a tagged field's value; none if the field is absent. Raises MalformedMessageError."""
    if start is None:
        return ()
    count, position = read_items(body, start, True)
    nodes = []
    for _ in range(count):
        node_id, position = read_int32(body, position)
        host, position = read_name(body, position, True)
        port, position = read_int32(body, position)
        rack, position = read_string(body, position, True)
        position = read_tags(body, position)[1]
        nodes.append(NodeEndpoint(node_id, host, port, rack))
    return tuple(nodes)
