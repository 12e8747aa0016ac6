"""Groups of subcommands that also take the command lines of Kafka's own tools.

`kafka-topics --create --topic orders` is `klog topics create orders` here, and works as it stands with the
program's name changed: the flag that says what to do becomes the subcommand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from typer.core import TyperGroup


class ToolGroup(TyperGroup):
    """A group with `actions`: Kafka's flag for each subcommand."""

    actions: ClassVar[Mapping[str, str]] = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 (click's own signature)
        """Put the subcommand that a flag of Kafka's means first."""
        flag = next((argument for argument in args if argument in self.actions), None)
        if flag is not None:
            rest = list(args)
            rest.remove(flag)
            args = [self.actions[flag], *rest]
        return super().parse_args(ctx, args)
