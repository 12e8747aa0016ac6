"""The options with which `klog consume` reads as a member of a consumer group, and the properties of Kafka's.

Rules: Kafka's consumer configs. What says which partitions or offsets to read contradicts a group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from klog.commands.shared.option_sets import flag, option_set, valued
from klog.commands.shared.properties import is_true
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.admin.group_consuming import Reset
    from klog.client.assignors import Assignor
    from klog.client.membership import MemberSettings
    from klog.commands.cluster.consuming.options import ReadingOptions
    from klog.commands.kafka_tools.console_consumer import ConsoleOptions, Start
    from klog.commands.shared.records.selection_options import SelectionOptions

_JAVA: Final = "org.apache.kafka.clients.consumer."
_JAVA_NAMES: Final = {
    f"{_JAVA}RangeAssignor": "range",
    f"{_JAVA}RoundRobinAssignor": "roundrobin",
    f"{_JAVA}CooperativeStickyAssignor": "cooperative-sticky",
}
_CURE: Final = "a group reads from its committed offsets on; `klog groups reset-offsets` changes them"


@option_set("Consumer group")
class GroupOptions:
    """Which group to join, and how."""

    group: str | None = valued(
        "GROUP",
        "Join this group: read a share of the partitions from the committed offsets on, and commit what "
        "was printed.",
        "--group",
        "-G",
    )
    no_commit: bool = flag("Do not commit offsets.")
    group_instance_id: str | None = valued(
        "ID", "Be a static member: keep the partitions while away for less than session.timeout.ms."
    )

    def group_id(self, properties: Mapping[str, str]) -> str | None:
        """The group to join, None for none. Raises UsageError for options that need a group."""
        named = self.group if self.group is not None else properties.get("group.id")
        if named == "":
            raise UsageError("--group is empty")
        if self.group and properties.get("group.id", self.group) != self.group:
            raise UsageError("--group and group.id name different groups")
        if named is None and (self.no_commit or self.group_instance_id is not None):
            what = "--no-commit" if self.no_commit else "--group-instance-id"
            raise UsageError(f"{what} is for members of a group", cure="--group GROUP")
        return named

    def member(self, group_id: str, properties: Mapping[str, str]) -> MemberSettings:
        """How to be a member, by Kafka's consumer configs. Raises UsageError."""
        from klog.admin.settings import milliseconds
        from klog.client.membership import MemberSettings

        known = MemberSettings(group_id)
        instance_id = self.group_instance_id or properties.get("group.instance.id") or None
        return MemberSettings(
            group_id,
            instance_id,
            _assignors(properties.get("partition.assignment.strategy", "")) or known.assignors,
            milliseconds(properties, "session.timeout.ms", known.session_timeout_ms),
            milliseconds(properties, "max.poll.interval.ms", known.rebalance_timeout_ms),
            milliseconds(properties, "heartbeat.interval.ms", known.heartbeat_interval_ms),
            milliseconds(properties, "metadata.max.age.ms", known.metadata_age_ms),
        )

    def commit_interval_ms(self, properties: Mapping[str, str]) -> int | None:
        """How often to commit, None for never. Raises UsageError."""
        if self.no_commit or not is_true(properties, "enable.auto.commit", default=True):
            return None
        from klog.admin.settings import milliseconds

        return milliseconds(properties, "auto.commit.interval.ms", 5_000)


def _assignors(text: str) -> tuple[Assignor, ...]:
    """Assignors by their names in the protocol, or by the classes of Java."""
    from klog.client.assignors import ASSIGNORS

    names = [word.strip() for word in text.split(",") if word.strip()]
    found = [ASSIGNORS.get(_JAVA_NAMES.get(name, name)) for name in names]
    for name, assignor in zip(names, found, strict=True):
        if assignor is None:
            raise UsageError(
                f"partition.assignment.strategy={name} is not known", cure=f"known are {', '.join(ASSIGNORS)}"
            )
    return tuple(assignor for assignor in found if assignor is not None)


def reset_of(start: Start, properties: Mapping[str, str], console: ConsoleOptions) -> Reset:
    """Where to start without a committed offset. Raises UsageError for starts that a group does not have."""
    from klog.admin.group_consuming import Reset

    if start.offset is not None or start.start_ms is not None or start.stop_ms is not None or start.last:
        raise UsageError("--offset and --group contradict each other", cure=_CURE)
    if start.beginning:
        return Reset.EARLIEST
    if start.last == 0:
        return Reset.LATEST
    if reset := properties.get("auto.offset.reset"):
        return Reset(reset)
    return Reset.LATEST if console.as_kafka else Reset.EARLIEST


def require_shared(reading: ReadingOptions, select: SelectionOptions) -> None:
    """Raise UsageError for options that say which partitions or offsets to read."""
    for name, value in (
        ("--partition", reading.partition),
        ("--last", reading.last),
        ("--offsets", select.offsets),
        ("--since", select.since),
        ("--until", select.until),
    ):
        if value is not None:
            raise UsageError(f"{name} and --group contradict each other", cure=_CURE)
