"""The options with which `klog topics` names topics and says what to show of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from klog.commands.shared.option_sets import argument, flag, optional, valued
from klog.commands.shared.usage import missing
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.admin.topic_selection import PartitionConditions, TopicSelection


@dataclass(frozen=True, slots=True)
class AnyTopics:
    """Topics by name, or by the patterns of kafka-topics; none stands for all topics."""

    names: list[str] | None = argument("[TOPIC]...", "The topics. [default: all]")
    topic: list[str] | None = valued(
        "REGEX", "Topics whose whole name matches, as for kafka-topics (repeatable)."
    )

    def selection(
        self, *, exclude_internal: bool = False, may_miss: bool = False, topic_id: str | None = None
    ) -> TopicSelection:
        """Which topics are meant."""
        from klog.admin.topic_selection import TopicSelection

        return TopicSelection(
            tuple(dict.fromkeys(self.names or ())),
            tuple(dict.fromkeys(self.topic or ())),
            topic_id,
            exclude_internal,
            may_miss,
        )


@dataclass(frozen=True, slots=True)
class SomeTopics(AnyTopics):
    """Names or patterns of topics, one at least."""

    names: list[str] | None = argument("TOPIC...", "The topics.")

    def required(self, *, may_miss: bool = False) -> TopicSelection:
        """Which topics are meant. Raises typer's error of a missing argument if none is."""
        selection = self.selection(may_miss=may_miss)
        if not selection.names and not selection.patterns:
            raise missing("TOPIC")
        return selection


@dataclass(frozen=True, slots=True)
class NewTopics:
    """Names of topics that do not exist yet."""

    names: list[str] | None = argument("TOPIC...", "The topics.")
    topic: list[str] | None = valued("TOPIC", "A topic, as for kafka-topics.")

    def required(self) -> list[str]:
        """The names, each once. Raises typer's error of a missing argument if there is none."""
        options = (name for group in self.topic or () for name in group.split(",") if name)
        names = list(dict.fromkeys((*(self.names or ()), *options)))
        if not names:
            raise missing("TOPIC")
        return names


@dataclass(frozen=True, slots=True)
class ShownPartitions:
    """Which topics and partitions to describe."""

    under_replicated: bool = flag(
        "Only partitions with replicas out of sync.", "--under-replicated-partitions"
    )
    unavailable: bool = flag("Only partitions without a leader.", "--unavailable-partitions")
    under_min_isr: bool = flag(
        "Only partitions with fewer replicas in sync than they must have.", "--under-min-isr-partitions"
    )
    at_min_isr: bool = flag(
        "Only partitions with just as many in sync as they must have.", "--at-min-isr-partitions"
    )
    with_overrides: bool = flag("Only topics with configs of their own.", "--topics-with-overrides")
    topic_id: str | None = valued("ID", "The topic with this id.")
    size_limit: int | None = optional(None, "", "--partition-size-limit-per-response", hidden=True)

    def conditions(self) -> PartitionConditions:
        """The conditions for partitions. Raises UsageError if topics and partitions are both selected."""
        from klog.admin.topic_selection import PartitionConditions

        found = PartitionConditions(
            self.under_replicated, self.unavailable, self.under_min_isr, self.at_min_isr
        )
        if found.any and self.with_overrides:
            raise UsageError("--topics-with-overrides selects topics, the other options partitions")
        return found
