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
            _discard_output()
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
    _stand_in_for_closed_streams()
    status = _status()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
    except OSError as error:
        status = _output_failed(error)
    sys.exit(status)


def _status() -> str | int | None:
    try:
        app()
    except SystemExit as done:
        return done.code
    except UsageError as error:
        _complain(error)
        return 2
    except KlogError as error:
        _complain(error)
        return 1
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        # What concerns a file names it, and is a KlogError by now: this is stdout's own (a full disk).
        if error.filename is not None:
            raise
        return _output_failed(error)
    return 0


def _stand_in_for_closed_streams() -> None:
    """Under `>&-` and the like a stream is None: nothing is read from it, what is written to it vanishes."""
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 (open until the process ends)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def _output_failed(error: OSError) -> int:
    _discard_output()
    _complain(KlogError(f"standard output cannot be written: {error.strerror}", cure="free some space"))
    return 1


def _discard_output() -> None:
    """What is still buffered goes nowhere, so that the interpreter's end does not try once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(error: KlogError) -> None:
    print(f"klog: {error}", file=sys.stderr)  # noqa: T201
