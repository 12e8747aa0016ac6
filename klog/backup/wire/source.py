"""A live cluster as the source of a run: its topics, and the ends of their partitions at their leaders."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Self

from klog.backup.model import PartitionRef, Source
from klog.backup.sources import Candidate, Found
from klog.backup.wire.clients import Client, Clients, OpenCluster
from klog.backup.wire.groups import group_partitions
from klog.backup.wire.partition import RefusedPartition, WirePartition
from klog.backup.wire.reader import LeaderChangedError, PartitionReader
from klog.client.errors import RefusedError
from klog.client.log_dirs import describe_log_dirs
from klog.client.offsets import try_list_offsets
from klog.formats.errors import KlogError
from klog.formats.names import CONSUMER_OFFSETS, TopicPartition
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.offset_times import EARLIEST, LATEST


class WireSource:
    """A cluster that `open_cluster` connects to. `name` stands for it if it has no id (before Kafka 0.10.1).

    `on_note` receives what the cluster does not let this client know. `with WireSource(...)` closes the
    connections at the end.
    """

    def __init__(
        self, open_cluster: OpenCluster, name: str, on_note: Callable[[str], object] = lambda _text: None
    ) -> None:
        self._clients = Clients(open_cluster)
        self._name = name
        self._on_note = on_note

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clients.close()

    def find(
        self,
        is_wanted: Callable[[str], bool],
        before: Mapping[TopicPartition, PartitionRef],
        now_ms: int,  # noqa: ARG002 (of the protocol)
    ) -> Found:
        """Ask for the topics and the ends of their partitions. Raises `KlogError`."""
        client = self._clients.get()
        answer = client.cluster.metadata(None)
        cluster_id = getattr(answer, "cluster_id", None)
        name = f"kafka://{cluster_id or self._name}"
        topics = {topic.name: topic for topic in answer.topics if is_wanted(topic.name)}
        known = [each for each, ref in before.items() if ref.source == name and is_wanted(each.topic)]
        known += [each for each in self._hosted(client) if is_wanted(each.topic)]
        for topic in self._missing(client, {each.topic for each in known} - topics.keys()):
            topics[topic.name] = topic
        candidates: dict[TopicPartition, Candidate] = {}
        led: list[Entity] = []
        for topic in topics.values():
            if topic.partitions:
                led.append(topic)
                continue
            error = RefusedError(f"topic {topic.name}", topic.error_code, right="Read")
            refused = [each for each in known if each.topic == topic.name]
            for each in refused or [TopicPartition(topic.name, 0)]:
                candidates[each] = RefusedPartition(error)
        self._clients.topics = [topic.name for topic in led]
        client.cluster.refresh_existing(self._clients.topics)
        candidates |= self._of_leaders(client, name, led)
        sources = [Source(name, None, cluster_id)]
        if is_wanted(CONSUMER_OFFSETS) and not self._can_read_groups(client, candidates):
            groups = f"{name}/groups"
            is_known = any(ref.source == groups for ref in before.values())
            found = group_partitions(client.cluster, groups, is_known=is_known)
            if found:
                candidates = {each: of for each, of in candidates.items() if each.topic != CONSUMER_OFFSETS}
                candidates |= found
                sources.append(Source(groups, None, cluster_id))
        return Found(sources, candidates, frozenset(sources))

    def _can_read_groups(self, client: Client, candidates: Mapping[TopicPartition, Candidate]) -> bool:
        """Whether this client may read `__consumer_offsets`. Not, if the cluster does not even list it."""
        own = [candidate for each, candidate in candidates.items() if each.topic == CONSUMER_OFFSETS]
        refused = [each.error for each in own if isinstance(each, RefusedPartition)]
        readable = [each for each in own if isinstance(each, WirePartition)]
        filled = [each for each in readable if each.log_start_offset < each.high_watermark]
        if filled:
            reader = PartitionReader(client, filled[0].partition, filled[0].topic_id)
            reader.begin()
            try:
                reader.fetch(filled[0].log_start_offset)
            except LeaderChangedError:
                return True
            except KlogError as error:
                refused.append(error)
        return bool(own) and not any(
            isinstance(error, RefusedError) and error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            for error in refused
        )

    def _hosted(self, client: Client) -> set[TopicPartition]:
        """What brokers have replicas of. They list it also if this client may not see the topics."""
        found = describe_log_dirs(client.cluster)
        if any(isinstance(error, RefusedError) and error.is_of_rights for error in found.failures.values()):
            self._on_note(
                "topics that this user may not describe are not noticed: to know of them it needs the right"
                " Describe on the cluster"
            )
        return {each.partition for directory in found.dirs for each in directory.replicas}

    def _missing(self, client: Client, topics: Collection[str]) -> Iterable[Entity]:
        """Of topics that a broker does not list, those that it does not say to be deleted.

        It lists only those that this client may see.
        """
        if not topics:
            return []
        return [
            topic
            for topic in client.cluster.metadata(topics).topics
            if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]

    def _of_leaders(
        self, client: Client, name: str, topics: Iterable[Entity]
    ) -> Mapping[TopicPartition, Candidate]:
        ids = {topic.name: getattr(topic, "topic_id", None) for topic in topics}
        partitions = [
            TopicPartition(topic, number) for topic in ids for number in client.cluster.partitions(topic)
        ]
        starts = try_list_offsets(client.cluster, dict.fromkeys(partitions, EARLIEST))
        ends = try_list_offsets(client.cluster, dict.fromkeys(partitions, LATEST))
        found: dict[TopicPartition, Candidate] = {}
        for each in partitions:
            start, end = starts[each], ends[each]
            if isinstance(start, KlogError):
                found[each] = RefusedPartition(start)
                continue
            if isinstance(end, KlogError):
                found[each] = RefusedPartition(end)
                continue
            leader = client.cluster.partitions(each.topic)[each.partition]
            found[each] = WirePartition(
                self._clients, name, each, ids[each.topic], leader.leader_epoch, start, end
            )
        return found
