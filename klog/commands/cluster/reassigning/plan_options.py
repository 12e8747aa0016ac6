"""The options of `klog reassign plan` that say what is to be true."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klog.commands.shared.option_sets import flag, option_set, optional, valued
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.admin.reassign.goals import Goal

_PERCENT: Final = 100

Rollback = Annotated[
    Path | None,
    typer.Option(
        "--rollback",
        metavar="FILE",
        help="Write the reassignment that goes back to this file.",
        show_default=False,
    ),
]
_TOLERANCE_HELP: Final = "How many percent from its fair share of bytes a broker or directory may be."
Tolerance = Annotated[float, typer.Option("--tolerance", metavar="PERCENT", help=_TOLERANCE_HELP)]


def broker_list(name: str, text: str) -> list[int]:
    """Parse `1,2,3`; `name` is the option's. Raises UsageError."""
    try:
        return [int(broker) for broker in text.split(",")]
    except ValueError as error:
        raise UsageError(
            f"{name} {text!r} is not valid", cure="give ids of brokers, for example 1,2"
        ) from error


@option_set("Goal")
class GoalOptions:
    """What is to be true."""

    brokers: str | None = valued(
        "1,2,3", "Use exactly these brokers, and even out their bytes.", "--brokers", "--broker-list"
    )
    drain: str | None = valued("3", "Leave no replica on these brokers.")
    add: str | None = valued("4,5", "Give these brokers their fair share of bytes, and move nothing else.")
    replication_factor: int | None = valued("N", "Give each partition so many replicas.", least=1)
    tolerance: float = optional(1.0, _TOLERANCE_HELP, metavar="PERCENT")
    keep_leaders: bool = flag("Do not change preferred leaders that may stay.")
    disable_rack_aware: bool = flag("Place replicas without regard to racks.")

    def goal(self) -> Goal:
        """The goal. Raises UsageError."""
        from klog.admin.reassign.goals import Goal

        brokers, drained, added = (
            None if text is None else frozenset(broker_list(name, text))
            for name, text in (("--brokers", self.brokers), ("--drain", self.drain), ("--add", self.add))
        )
        return Goal(
            brokers,
            drained or frozenset(),
            added or frozenset(),
            self.replication_factor,
            not self.disable_rack_aware,
            self.keep_leaders,
            self.tolerance / _PERCENT,
        )
