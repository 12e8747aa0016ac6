"""Asks several brokers: every one, or the leader of each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from klog.client.cluster import Cluster
from klog.client.connection import Connection
from klog.client.errors import ClientError
from klog.client.requests import refusal
from klog.formats.constants import NO_LEADER
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.entity_fields import Entity
from klog.protocol.errors import ChannelError

_Answer = TypeVar("_Answer")
AskLeader = Callable[[Connection, Sequence[TopicPartition]], Mapping[TopicPartition, _Answer]]
"""Sends one request for partitions to the broker that leads them, and gives the outcome of each."""


def broker_ids(cluster: Cluster) -> list[int]:
    """The ids of the brokers that are alive, ascending. Raises ChannelError."""
    return sorted(int(broker.node_id) for broker in cluster.metadata(()).brokers)


def ask_every_broker(
    cluster: Cluster, what: str, ask: Callable[[Connection], Entity]
) -> Iterator[tuple[int, Entity]]:
    """What each broker that is alive answers; asks again after an error that passes.

    Raises ClientError, ChannelError.
    """
    for broker_id in broker_ids(cluster):
        retry = cluster.new_retry()
        while True:
            answer = ask(cluster.connection(broker_id))
            error = refusal(answer, f"{what} of broker {broker_id}")
            if error is None:
                break
            if not error.code.retriable:
                raise error
            retry.failed(error)
        yield broker_id, answer


def ask_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    ask: AskLeader[_Answer],
    broker_id: int | None = None,
) -> dict[TopicPartition, _Answer]:
    """The answer of each partition's leader, or of one broker for all; asks again while leaders move.

    `ask` raises the error of a partition. Raises ClientError, ChannelError.
    """
    found: dict[TopicPartition, _Answer] = {}
    wanted = [TopicPartition(*partition) for partition in partitions]
    retry = cluster.new_retry()
    while missing := [partition for partition in wanted if partition not in found]:
        try:
            asked = cluster.by_leader(missing) if broker_id is None else {broker_id: missing}
            for leader_id, led in asked.items():
                found |= ask(cluster.leader_connection(leader_id, led), led)
        except (ClientError, ChannelError) as error:
            cluster.pause_and_refresh(error, {partition.topic for partition in missing}, retry)
    return found


def try_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    ask: AskLeader[_Answer | KlogError],
    *,
    no_leader: Callable[[TopicPartition], KlogError],
    may_pass: Callable[[TopicPartition, KlogError], bool],
) -> dict[TopicPartition, _Answer | KlogError]:
    """The answer of each partition's leader, or the error of that partition.

    `no_leader` is the error of a partition without a leader; `may_pass` says after which errors to ask
    again. The cluster must know the leaders. Raises UnsupportedApiError.
    """
    found: dict[TopicPartition, _Answer | KlogError] = {}
    retry = cluster.new_retry()
    missing = list(partitions)
    while True:
        for leader_id, led in cluster.by_leader(missing).items():
            try:
                found |= (
                    {each: no_leader(each) for each in led}
                    if leader_id == NO_LEADER
                    else ask(cluster.connection(leader_id), led)
                )
            except (ClientError, ChannelError) as failure:
                found |= dict.fromkeys(led, failure)
        errors = {
            partition: error
            for partition in missing
            if isinstance(error := found[partition], KlogError) and may_pass(partition, error)
        }
        if not errors:
            return found
        missing = list(errors)
        try:
            cluster.pause_and_refresh(errors[missing[0]], {each.topic for each in missing}, retry)
        except (ClientError, ChannelError):
            return found
