"""Commands with subcommands that also accept the command lines of Kafka's own tools.

`kafka-topics --create --topic orders` is `klog topics create orders` here. It also works if only the name of
the program changes: the flag that names the action becomes the subcommand, which then behaves and prints as
Kafka's tool (`AsKafka`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import typer
from typer.core import TyperGroup

from klog.commands.shared.option_sets import CommandGroup
from klog.commands.shared.version import show_version

_AS_KAFKA: Final = "--as-kafka"
_TYPE: Final = "--entity-type"
_NAME: Final = "--entity-name"
_DEFAULT: Final = "--entity-default"
_PAIR: Final = 2
_BEFORE: Final = ("--bootstrap-server", "-b", "--command-config")

AsKafka = Annotated[bool, typer.Option(_AS_KAFKA, hidden=True)]
"""Whether the action was named by a flag, as for Kafka's tool."""


class _ToolCommand(TyperGroup):
    """A command with `actions`: the subcommand that each flag of Kafka's tool stands for.

    `default` is the subcommand for a command line that names none.
    """

    actions: ClassVar[Mapping[str, str]] = {}
    default: ClassVar[str | None] = None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 (click's own signature)
        """Replace the flag that names the action by the subcommand, in front of the other arguments."""
        if "--version" in args:  # Kafka's tools take it beside other options
            show_version()
        args = _subcommand_first(args, set(self.list_commands(ctx)))
        flag = next((argument for argument in args if argument in self.actions), None)
        if flag is not None:
            rest = list(args)
            rest.remove(flag)
            args = [self.actions[flag], _AS_KAFKA, *_default_entities_as_names(rest)]
        elif self.default is not None and not _names_a_command(args, self.list_commands(ctx)):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


def _default_entities_as_names(args: Sequence[str]) -> list[str]:
    """The arguments with an empty name instead of `--entity-default`, if there are two entities.

    kafka-configs pairs types with names and defaults in their order.
    """
    options = [argument.partition("=")[0] for argument in args]
    if options.count(_TYPE) < _PAIR or _NAME not in options:
        return list(args)
    return [f"{_NAME}=" if argument == _DEFAULT else argument for argument in args]


def _names_a_command(args: Sequence[str], subcommands: Collection[str]) -> bool:
    """Whether the first argument names a subcommand, right or wrong, or asks for the help."""
    if not args:
        return False
    return args[0] in ("-h", "--help") or args[0] in subcommands or not args[0].startswith("-")


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


def tool_app(
    name: str,
    summary: str,
    actions: Mapping[str, str],
    examples: Sequence[str],
    *,
    default: str | None = None,
) -> CommandGroup:
    """An application of subcommands; `actions` maps flags of Kafka's tool to them.

    `default` is the subcommand that runs if the command line names none.
    """
    command: type[TyperGroup] = type("ToolCommand", (_ToolCommand,), {"actions": actions, "default": default})
    return CommandGroup(
        cls=command,
        name=name,
        help="\n\n    ".join((f"{summary}\n\nExamples:", *examples)),
        add_completion=False,
        rich_markup_mode=None,
    )
