"""What a sentence of a plan means: which items of a cluster may differ because of it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, TypeAlias

from klog.cluster_metadata.comparison import Item

Covers: TypeAlias = Callable[[Item], bool]


def _kinds(*kinds: str) -> Covers:
    return lambda item: item.kind in kinds


def _members(kind: str, *members: str) -> Covers:
    return lambda item: item.kind == kind and item.member in members


def _of_reassignments(item: Item) -> bool:
    members = ("replicas", "adding", "removing", "directories")
    return item.kind == "reassignment" or (item.kind == "partition" and item.member in members)


# By the beginning of the sentence.
_COVERED: Final[tuple[tuple[str, Covers], ...]] = (
    ("registrations of brokers", _kinds("broker", "controller", "voter")),
    ("registrations of controllers", _kinds("controller")),
    ("details of brokers", _kinds("broker")),
    ("brokers are fenced", _members("broker", "fenced")),
    ("the quorum", _kinds("controller", "voter")),
    ("feature", _kinds("feature")),
    ("the state of a migration", _members("cluster", "migrationState")),
    ("the counter of generated broker ids", _members("cluster", "generatedBrokerIds")),
    ("configs of client metrics", lambda item: item.name.startswith("client_metrics ")),
    ("directories of replicas", _members("partition", "directories")),
    ("eligible leaders", _members("partition", "isr", "eligibleLeaders", "lastKnownEligibleLeaders")),
    ("partition epochs", _members("partition", "partitionEpoch")),
    ("that partitions have no leader yet", _members("partition", "leader", "leaderEpoch", "isr")),
    ("partitions have no leader", _members("partition", "leader", "leaderEpoch", "isr")),
    ("topics without an id", _members("topic", "topicId")),
    ("marks of topics for deletion", _kinds("deletion")),
    ("reassignments that have not begun", _kinds("reassignment")),
    ("reassignments that were requested begin", _of_reassignments),
    ("SCRAM credentials", _kinds("credential")),
    ("delegation tokens", _kinds("token")),
    ("the ACLs of ", _kinds("acl")),
)


def covers(sentence: str) -> Covers:
    """The items that may differ because of a sentence of a plan."""
    known = next((found for beginning, found in _COVERED if sentence.startswith(beginning)), None)
    return known or (lambda item: _is_named(item, sentence))


def is_covered(item: Item, sentences: Collection[str]) -> bool:
    """Whether a difference of an item is what one of these sentences says."""
    return any(covers(each)(item) for each in sentences)


def _is_named(item: Item, sentence: str) -> bool:
    """Whether a sentence names a config or a quota of the item's entity."""
    if item.kind == "quota":
        return sentence.startswith(f"{item.member} of ")
    where = item.name.replace("<default>", "default")
    return item.kind == "config" and item.member in sentence and f" of {where} " in sentence
