"""The options with which `klog topics` names topics and says what to show of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from klog.commands.shared.usage import missing
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.admin.topic_selection import PartitionConditions, TopicSelection


@dataclass(frozen=True, slots=True)
class AnyTopics:
    """Topics by name, or by the patterns of kafka-topics; none stands for all topics."""

    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC]...", help="The topics. [default: all]", show_default=False),
    ] = None
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="REGEX",
            help="Topics whose whole name matches, as for kafka-topics (repeatable).",
            show_default=False,
        ),
    ] = None

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

    names: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC...", help="The topics.", show_default=False)
    ] = None

    def required(self, *, may_miss: bool = False) -> TopicSelection:
        """Which topics are meant. Raises typer's error of a missing argument if none is."""
        selection = self.selection(may_miss=may_miss)
        if not selection.names and not selection.patterns:
            raise missing("TOPIC")
        return selection


@dataclass(frozen=True, slots=True)
class NewTopics:
    """Names of topics that do not exist yet."""

    names: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC...", help="The topics.", show_default=False)
    ] = None
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="A topic, as for kafka-topics.", show_default=False),
    ] = None

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

    under_replicated: Annotated[
        bool,
        typer.Option("--under-replicated-partitions", help="Only partitions with replicas out of sync."),
    ] = False
    unavailable: Annotated[
        bool, typer.Option("--unavailable-partitions", help="Only partitions without a leader.")
    ] = False
    under_min_isr: Annotated[
        bool,
        typer.Option(
            "--under-min-isr-partitions",
            help="Only partitions with fewer replicas in sync than they must have.",
        ),
    ] = False
    at_min_isr: Annotated[
        bool,
        typer.Option(
            "--at-min-isr-partitions", help="Only partitions with just as many in sync as they must have."
        ),
    ] = False
    with_overrides: Annotated[
        bool, typer.Option("--topics-with-overrides", help="Only topics with configs of their own.")
    ] = False
    topic_id: Annotated[
        str | None,
        typer.Option("--topic-id", metavar="ID", help="The topic with this id.", show_default=False),
    ] = None
    size_limit: Annotated[int | None, typer.Option("--partition-size-limit-per-response", hidden=True)] = None

    def conditions(self) -> PartitionConditions:
        """The conditions for partitions. Raises UsageError if topics and partitions are both selected."""
        from klog.admin.topic_selection import PartitionConditions

        found = PartitionConditions(
            self.under_replicated, self.unavailable, self.under_min_isr, self.at_min_isr
        )
        if found.any and self.with_overrides:
            raise UsageError("--topics-with-overrides selects topics, the other options partitions")
        return found
