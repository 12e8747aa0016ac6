"""The options with which `klog groups` names groups and says how to reset their offsets.

They have the names of `kafka-consumer-groups`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klog.commands.shared.option_sets import argument, flag, option_set, valued
from klog.commands.shared.properties import text_of
from klog.commands.shared.usage import missing
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.admin.offset_reset import Rule
    from klog.formats.names import TopicPartition

_SCOPE: Final = "Partitions"


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups by name; none stands for all only with `--all-groups`."""

    names: list[str] | None = argument("[GROUP]...", "The groups.")
    group: list[str] | None = valued("GROUP", "A group, as for kafka-consumer-groups (repeatable).")
    all_groups: bool = flag("All consumer groups.")

    def given(self) -> list[str]:
        """The names, each once; none with `--all-groups`. Raises typer's error of a missing argument."""
        names = list(dict.fromkeys((*(self.names or ()), *(self.group or ()))))
        if names and self.all_groups:
            raise UsageError("--all-groups and names of groups exclude each other")
        if not names and not self.all_groups:
            raise missing("GROUP (or --all-groups)")
        return names


@dataclass(frozen=True, slots=True)
class OneGroup:
    """The name of one group."""

    name: str | None = argument("GROUP", "The group.")
    group: str | None = valued("GROUP", "The group, as for kafka-consumer-groups.")

    def required(self) -> str:
        """The name. Raises typer's error of a missing argument if there is none."""
        names = {name for name in (self.name, self.group) if name is not None}
        if len(names) > 1:
            raise UsageError("two groups are named", cure="name one")
        if not names:
            raise missing("GROUP")
        return names.pop()


@option_set("Rules, of which one is needed")
class ResetRules:
    """The rules of `reset-offsets`, of which one is given."""

    to_earliest: bool = flag("The first offset.")
    to_latest: bool = flag("The end.")
    to_current: bool = flag("The committed offset, or the end.")
    to_offset: int | None = valued("N", "This offset.")
    shift_by: int | None = valued("N", "N offsets forward from the committed one, or back if negative.")
    to_datetime: str | None = valued(
        "TIME", "The first record of a time (YYYY-MM-DDTHH:mm:SS.sss, UTC) or later."
    )
    by_duration: str | None = valued("DURATION", "The first record of so long ago or later (P7D, PT1H30M).")
    from_file: Path | None = valued("FILE", "The offsets in a file of CSV, as --export prints it.")

    def rule(self, now_ms: int) -> Rule | None:
        """The rule that is given; None for `--from-file`. Raises UsageError unless it is just one."""
        from klog.admin import offset_reset as rules

        makers: list[tuple[str, object, Callable[[Any], Rule | None]]] = [
            ("--to-earliest", self.to_earliest or None, lambda _: rules.to_earliest),
            ("--to-latest", self.to_latest or None, lambda _: rules.to_latest),
            ("--to-current", self.to_current or None, lambda _: rules.to_current),
            ("--to-offset", self.to_offset, rules.to_offset),
            ("--shift-by", self.shift_by, rules.shift_by),
            ("--to-datetime", self.to_datetime, lambda text: rules.to_time(rules.parse_datetime(text))),
            ("--by-duration", self.by_duration, lambda text: rules.by_duration(text, now_ms)),
            ("--from-file", self.from_file, lambda _: None),
        ]
        given = [(name, value, make) for name, value, make in makers if value is not None]
        if not given:
            raise UsageError(
                "nothing says to which offsets", cure=f"one of {', '.join(name for name, _, _ in makers)}"
            )
        if len(given) > 1:
            raise UsageError(f"{' and '.join(name for name, _, _ in given)} exclude each other")
        _, value, make = given[0]
        return make(value)

    def offsets_of(self, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
        """What `--from-file` says for each group. Raises FormatError, StorageError."""
        from klog.admin.offset_reset import from_csv

        path = self.from_file or Path()
        return from_csv(text_of(path).splitlines(), groups, str(path))


@dataclass(frozen=True, slots=True)
class ResetScope:
    """Of which partitions to reset the offsets, and whether to do it."""

    topic: list[str] | None = valued(
        "TOPIC[:N,...]", "A topic, or some of its partitions, like orders:0,2 (repeatable).", panel=_SCOPE
    )
    all_topics: bool = flag("All partitions of which the group has offsets.", panel=_SCOPE)
    execute: bool = flag("Set the offsets.")
    dry_run: bool = flag("Only show the new offsets (the default).")
    export: bool = flag("Print the new offsets as CSV for --from-file.")

    def check(self, *, from_file: bool) -> None:
        """Raise UsageError if the options contradict each other or say nothing of the partitions."""
        if self.execute and self.dry_run:
            raise UsageError("--execute and --dry-run exclude each other")
        ways = [bool(self.topic), self.all_topics, from_file]
        if sum(ways) > 1:
            raise UsageError("--topic, --all-topics and --from-file exclude each other")
        if not any(ways):
            raise missing("--topic TOPIC (or --all-topics, or --from-file FILE)")


@dataclass(frozen=True, slots=True)
class DescribeOptions:
    """What to show of groups."""

    offsets: bool = flag("The offsets and the lag of each partition (the default).")
    members: bool = flag("The members.")
    state: bool = flag("The coordinator, the assignor and the state.")
    verbose: bool = flag("Also the partitions of each member, and leader epochs of offsets.")

    def check(self) -> None:
        """Raise UsageError if more than one view is asked for."""
        if self.offsets + self.members + self.state > 1:
            raise UsageError("--offsets, --members and --state exclude each other")
