"""Groups of subcommands that also accept the command lines of Kafka's own tools.

`kafka-topics --create --topic orders` is `klog topics create orders` here. It also works if only the name of
the program changes: the flag that names the action becomes the subcommand, which then behaves and prints as
Kafka's tool (`AsKafka`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import typer
from typer.core import TyperGroup

_AS_KAFKA: Final = "--as-kafka"
_BEFORE: Final = ("--bootstrap-server", "-b", "--command-config")

AsKafka = Annotated[bool, typer.Option(_AS_KAFKA, hidden=True)]
"""Whether the action was named by a flag, as for Kafka's tool."""


class _ToolGroup(TyperGroup):
    """A group with `actions`: the subcommand that each flag of Kafka's tool stands for."""

    actions: ClassVar[Mapping[str, str]] = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 (click's own signature)
        """Replace the flag that names the action by the subcommand, in front of the other arguments."""
        if "--version" in args:  # Kafka's tools take it beside other options
            from klog.commands.main import show_version

            show_version()
        args = _subcommand_first(args, set(self.list_commands(ctx)))
        flag = next((argument for argument in args if argument in self.actions), None)
        if flag is not None:
            rest = list(args)
            rest.remove(flag)
            args = [self.actions[flag], _AS_KAFKA, *rest]
        return super().parse_args(ctx, args)


def _subcommand_first(args: Sequence[str], subcommands: Collection[str]) -> list[str]:
    """The arguments with the subcommand in front of the options that are before it.

    kafka-transactions takes `--bootstrap-server` and `--command-config` there, each with its value.
    """
    place = 0
    while place + 2 < len(args) and args[place] in _BEFORE:
        place += 2
    if place and args[place] in subcommands:
        return [args[place], *args[:place], *args[place + 1 :]]
    return list(args)


def tool_app(name: str, summary: str, actions: Mapping[str, str], examples: Sequence[str]) -> typer.Typer:
    """An application of subcommands; `actions` maps flags of Kafka's tool to them."""
    group: type[TyperGroup] = type("ToolGroup", (_ToolGroup,), {"actions": actions})
    return typer.Typer(
        cls=group,
        name=name,
        help="\n\n    ".join((f"{summary}\n\nExamples:", *examples)),
        add_completion=False,
        rich_markup_mode=None,
    )
