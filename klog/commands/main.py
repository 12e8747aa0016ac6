"""The `klog` command: finds a subcommand, runs it, turns its outcome into an exit code.

Exit codes: 0 done and clean, 1 problems found or bad input, 2 wrong usage, 130 interrupted.
Subcommands are imported only when they are named, so that a small dump starts in a blink.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from klog.formats.errors import KlogError, UsageError

COMMANDS: Final = {
    "dump-segment": "dump_segment",
    "verify": "verify",
    "rebuild-index": "rebuild_index",
    "recover": "recover",
    "clean": "clean",
    "formats": "formats",
    "serve": "serve",
    "topics": "topics",
    "configs": "configs",
    "produce": "produce",
    "consume": "consume",
}
"""Subcommand -> module of `klog.commands`: its function of that name is the command, its `app` a group."""


class _LazyGroup(TyperGroup):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 (click's own signature)
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002
        module_name = COMMANDS.get(cmd_name)
        if module_name is None:
            return None
        module = importlib.import_module(f"klog.commands.{module_name}")
        if hasattr(module, "app"):
            return typer.main.get_command(module.app)
        holder = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        holder.command(cmd_name, no_args_is_help=getattr(module, "NO_ARGS_IS_HELP", True))(
            getattr(module, module_name)
        )
        return typer.main.get_command(holder)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader of our output has gone (`| head`): nothing is wrong, and nothing more can be said.
            # Typer would make it exit code 1.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit from None


app = typer.Typer(
    cls=_LazyGroup,
    name="klog",
    help="Kafka's log, in Python: read, check and mend the files of a Kafka log directory.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        from klog.formats import kernel

        print(f"klog {version('klog')} ({kernel.IMPLEMENTATION} kernel)")  # noqa: T201
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and which kernel runs.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options that belong to no subcommand."""


def main() -> None:
    """Run the command line of this process and exit with its code."""
    try:
        app()
    except UsageError as error:
        _complain(error)
        sys.exit(2)
    except KlogError as error:
        _complain(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _complain(error: KlogError) -> None:
    print(f"klog: {error}", file=sys.stderr)  # noqa: T201
