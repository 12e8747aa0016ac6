"""OffsetCommit requests as bytes on the wire, and Hypothesis strategies of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from hypothesis import strategies as st

from klog.protocol.apis import ApiKey
from klog.protocol.messages import build, encode_request, encode_request_header, request_class
from tests.entity_structs import request_struct
from tests.request_strategies import damaged_frames, framed

LEADER_EPOCH = 2

# Partition, offset and metadata.
Partitions = Sequence[tuple[int, int, str | None]]
Commits = Mapping[tuple[str, int], tuple[int, str | None]]


@dataclass(frozen=True)
class CommitFields:
    """What a request says beside its offsets."""

    version: int
    group: str = "g"
    generation: int = -1
    member: str = ""
    instance: str | None = None
    retention_ms: int = -1
    correlation_id: int = 7
    client_id: str | None = "client"


def commit_frame(fields: CommitFields, commits: Commits | Iterable[tuple[str, Partitions]]) -> bytes:
    """A request, frame and header included. Commits that are given by key are grouped by topic."""
    if isinstance(commits, Mapping):
        by_topic: dict[str, list[tuple[int, int, str | None]]] = {}
        for (topic, number), (offset, metadata) in commits.items():
            by_topic.setdefault(topic, []).append((number, offset, metadata))
        commits = by_topic.items()
    api, version = ApiKey.OFFSET_COMMIT, fields.version
    values = {
        "group_id": fields.group,
        "generation_id_or_member_epoch": fields.generation,
        "member_id": fields.member,
        "topics": tuple(_topic(version, name, partitions) for name, partitions in commits),
    }
    if version <= 4:
        values["retention_time"] = timedelta(milliseconds=fields.retention_ms)
    if version >= 7:
        values["group_instance_id"] = fields.instance
    body = encode_request(build(request_class(api, version), **values))
    return framed(encode_request_header(api, version, fields.correlation_id, fields.client_id) + body)


def _topic(version: int, name: str, partitions: Partitions):
    api = ApiKey.OFFSET_COMMIT
    partition_type = request_struct(api, version, "OffsetCommitRequestPartition")
    epoch = {"committed_leader_epoch": LEADER_EPOCH} if version >= 6 else {}
    structs = tuple(
        build(
            partition_type,
            partition_index=number,
            committed_offset=offset,
            committed_metadata=metadata,
            **epoch,
        )
        for number, offset, metadata in partitions
    )
    return build(request_struct(api, version, "OffsetCommitRequestTopic"), name=name, partitions=structs)


@st.composite
def commit_frames(draw: st.DrawFn, topics: Sequence[str], senders: Sequence[CommitFields]) -> bytes:
    """A request of one of the senders. Most are usual."""

    def seldom(common: object, *others: object) -> object:
        return draw(st.sampled_from((common,) * 12 + others))

    sender = draw(st.sampled_from(senders))
    fields = CommitFields(
        int(seldom(sender.version, 2, 5, 9)),
        seldom(sender.group, "", "grüppe"),
        seldom(sender.generation, 3, -1),
        seldom(sender.member, "ü", "unknown"),
        seldom(sender.instance, "i", "ü", ""),
        seldom(-1, 1000),
        draw(st.integers(-(2**31), 2**31 - 1)),
        draw(st.sampled_from(("client", None, ""))),
    )
    metadata = st.sampled_from(("", "", None, "some", "m" * 300, "ü" if seldom(False, True) else ""))
    partition = st.tuples(st.sampled_from((0, 0, 1, seldom(0, 2))), st.integers(-1, 2**63 - 1), metadata)
    commits = draw(
        st.lists(
            st.tuples(
                st.sampled_from((*topics, seldom(topics[0], "unknown", "t" * 130))),
                st.lists(partition, min_size=int(seldom(1, 0)), max_size=2, unique_by=lambda each: each[0]),
            ),
            min_size=int(seldom(1, 0)),
            max_size=2,
            unique_by=(lambda each: each[0]) if seldom(True, False) else None,
        )
    )
    return commit_frame(fields, commits)


@st.composite
def commit_reads(
    draw: st.DrawFn, topics: Sequence[str], senders: Sequence[CommitFields] = (CommitFields(8),)
) -> list[bytes]:
    """What several reads of one connection bring: mostly usual frames."""
    frames = commit_frames(topics, senders)
    kinds = st.integers(0, 9).flatmap(lambda kind: damaged_frames(frames) if kind == 9 else frames)
    reads = draw(st.lists(st.lists(kinds, min_size=1, max_size=6), min_size=1, max_size=3))
    return [b"".join(each) for each in reads]
