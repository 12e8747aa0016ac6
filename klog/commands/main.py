"""The `klog` command: finds a subcommand, runs it and turns its outcome into an exit code.

Exit codes: 0 done and clean, 1 failed or problems found, 2 wrong command line, 130 interrupted
(docs/commands.md).
A subcommand is imported only when it is run, so that a small dump starts fast.
"""

from __future__ import annotations

import codecs
import errno
import gc
import importlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, Final, NamedTuple, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from klog.commands.shared.exit_codes import INTERRUPTED, exit_code
from klog.commands.shared.version import show_version
from klog.formats.errors import ChecksumCodeError, KlogError, StorageError

_COMPLETION_VARIABLE: Final = "_KLOG_COMPLETE"
"""Set in the process that a shell starts for a completion."""

_ClickError: Final[Any] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
"""The base of all errors of click. Newer versions of typer have a click of their own."""


class _Command(NamedTuple):
    module: str
    help: str


def _commands(table: str) -> dict[str, _Command]:
    """Lines `module: help`, of which long ones go on in the next; the module has the command's name."""
    found = {}
    for line in table.strip().replace(":\n   ", ":").splitlines():
        module, _, text = line.partition(": ")
        found[module.rpartition(".")[2].replace("_", "-")] = _Command(module, text)
    return found


COMMANDS: Final = _commands("""
offline.dump_segment: Show the content of segments, indexes, snapshots and checkpoints. Changes nothing.
offline.verify: Check everything that a broker would trust, and say what Kafka would do about each problem.
offline.rebuild_index: Rebuild the indexes of segments by Kafka's rules; never touches a .log.
offline.recover: Recover partitions as Kafka would after an unclean stop, but keep everything that is cut.
offline.clean:
    Compact logs and apply retention offline, by the topics' rules, as a broker's cleaner would now.
offline.convert: Convert segments to message format 2 and another codec, offline, and join small batches.
offline.export:
    Export records of segments to Parquet, ORC or JSON Lines: no broker, no JVM. Changes no segment.
offline.diff: Compare two replicas or backups offset by offset, and say which one Kafka would keep.
offline.backup: Back up the logs of brokers into a directory or an object store, and check and prune backups.
offline.restore:
    Bring logs back from a backup, as they were at a moment, as directories or into a running cluster.
offline.formats:
    List the formats of a log directory and of ZooKeeper's, draw one, or decode a part of a file by it.
servers.serve: Run a broker until it is interrupted.
servers.zookeeper:
    Run one ZooKeeper server until it is interrupted, from the jars that pip brings with PySpark.
offline.adopt: Put the topics of partition directories back into metadata that has lost them.
offline.metadata:
    Show, compare, check and convert a cluster's metadata: ZooKeeper, klog's own tree, KRaft, JSON.
cluster.cluster:
    Show the brokers, the controller and the features of any Kafka, and whether the cluster is healthy.
cluster.brokers: List the brokers of any Kafka, their configs and the APIs that they serve.
cluster.topics: List, describe, create, change and delete topics of any Kafka.
cluster.configs: Show and change configs of topics and brokers of any Kafka.
cluster.offsets:
    Show where partitions begin and end, and what a group has committed, or the offsets of a time.
cluster.delete_records:
    Delete the records of partitions before an offset, on all replicas. They cannot be brought back.
cluster.log_dirs:
    Show what each log directory of each broker holds: sizes, free space, replicas behind, moves.
cluster.elect_leader:
    Elect leaders of partitions: the preferred ones after a restart, or unclean ones after a loss.
cluster.acls: List, add and remove access control lists (ACLs) of any Kafka.
cluster.users: List users with SCRAM credentials of any Kafka, set their passwords, remove them.
cluster.tokens: Make delegation tokens of any Kafka, logins that end; renew, end and describe them.
cluster.quotas: Show and change the quotas of users, client ids and IP addresses of any Kafka.
cluster.groups:
    List and describe consumer groups of any Kafka with their lag, reset their offsets, delete them.
cluster.transactions: List and describe transactions of any Kafka, find those that hang, and abort them.
cluster.reassign: Move partitions between brokers and log directories of any Kafka, and see how far they are.
cluster.top:
    Show what a cluster does now: its health, what is written to topics, and how far groups are behind.
cluster.profile: Keep connection settings of clusters under names, and choose one.
cluster.produce: Write arguments, files, or lines of stdin as they arrive, to a topic of any Kafka.
cluster.consume: Print records of topics of any Kafka, alone or as a member of a consumer group.
""")
"""Maps a subcommand to its module of `klog.commands`.

The command is the module's function of the same name, or its `app` if it has subcommands. The help repeats
the first paragraph of the command's own help, so that the list of commands imports none of them.
"""


def load(name: str) -> Any:  # noqa: ANN401 (typer's own command)
    """The command; imports its module."""
    command = _loaded(name)
    if _COMPLETION_VARIABLE in os.environ:
        from klog.commands.shared.completion import add_completions

        add_completions(name, command)
    return command


def _loaded(name: str) -> Any:  # noqa: ANN401
    from klog.commands.shared.option_sets import CommandGroup

    module = importlib.import_module(f"klog.commands.{COMMANDS[name].module}")
    gc.enable()
    if hasattr(module, "app"):
        return _with_help(typer.main.get_command(module.app))
    single = CommandGroup(add_completion=False, rich_markup_mode=None)
    single.command(name)(getattr(module, module.__name__.rpartition(".")[2]))
    return _with_help(typer.main.get_command(single))


def _with_help(command: Any) -> Any:  # noqa: ANN401
    """The command, whose help and that of its subcommands is klog's own; rich's cuts names."""
    command.format_help = partial(_write_help, command)
    for subcommand in getattr(command, "commands", {}).values():
        _with_help(subcommand)
    return command


def _write_help(command: Any, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
    from klog.commands.shared.help import write_help

    write_help(command, ctx, formatter)


class _LazyCommand(TyperGroup):
    """A command whose subcommands are imported when they are run, and known by name and help until then."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 (click's own signature)
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002
        known = COMMANDS.get(cmd_name)
        return None if known is None else TyperCommand(cmd_name, help=known.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None or command is None else load(name), rest

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        _write_help(self, ctx, formatter)

    def make_context(self, *args: Any, **extra: Any) -> Any:  # noqa: ANN401
        with _reader_may_end():  # of `klog --help`
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        with _reader_may_end():
            return super().invoke(ctx)


@contextmanager
def _reader_may_end() -> Iterator[None]:
    """Exit with 0 if the reader of our output has ended (`| head`). That is no error."""
    try:
        yield
    except BrokenPipeError:
        _discard_output()
        raise typer.Exit from None


app = typer.Typer(
    cls=_LazyCommand,
    name="klog",
    help="Kafka's log, in Python: read, check and repair the files of a Kafka log directory.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root(
    _: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version and which parts are compiled.",
            callback=show_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Options of klog itself."""


def main() -> None:
    """Run the command line of this process, then exit with its code."""
    # kio imports hypothesis if it is installed, which takes longer than all the rest of a small command.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    run_to_exit(lambda: app(prog_name="klog", standalone_mode=False))


def run_to_exit(run: Callable[[], object]) -> NoReturn:
    """Run a command line, print an error as one line on stderr, and exit with the exit code.

    `run` raises click's errors and returns the exit code of `typer.Exit` (click's `standalone_mode=False`).
    """
    _replace_closed_streams()
    _make_output_encodable()
    status = _status(run)
    try:
        sys.stdout.flush()
    except OSError as error:
        status = _output_failed(error) or status
    sys.exit(status)


def _status(run: Callable[[], object]) -> str | int | None:
    try:
        code = run()
    except SystemExit as done:
        return done.code
    except (KlogError, ChecksumCodeError) as error:
        failed = _failed(error)
        return _signal_before(error) or failed
    except _ClickError as error:
        from klog.commands.shared.usage import usage_error

        if type(error).__name__ == "NoArgsIsHelpError":  # its text is the help
            typer.echo(error.message)
        return _failed(usage_error(error))
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except RuntimeError as error:
        # Python 3.11 raises it in the place of what a signal raised in a `__set_name__`, as while an import
        # makes a class.
        status = _signal_before(error)
        if status is None:
            raise
        return status
    except OSError as error:
        # Errors of files have a name and are KlogErrors by now. This one is of stdout (a full disk).
        if error.filename is not None:
            raise
        return _output_failed(error)
    return code if isinstance(code, int) else 0


def _signal_before(error: BaseException) -> str | int | None:
    """The exit code of the signal that was ending the command when the error came; None if there was none.

    For example, a consumer that was interrupted could not commit.
    """
    before = error.__context__
    while before is not None:
        if isinstance(before, KeyboardInterrupt):
            return INTERRUPTED
        if isinstance(before, SystemExit):
            return before.code
        before = before.__context__
    return None


def _failed(error: KlogError | ChecksumCodeError) -> int:
    from klog.commands.shared.messages import print_error

    print_error(error)
    return exit_code(error)


def _replace_closed_streams() -> None:
    """Use /dev/null for streams that the shell closed (`>&-`), which are None in Python.

    Output that nobody gets is an error: stdout is then a descriptor that cannot be written.
    """
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 (open until the process ends)
    if sys.stdout is None:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 1)
        sys.stdout = open(1, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def _make_output_encodable() -> None:
    """Let no text fail in the terminal's encoding.

    Names of files are written as the bytes that they are. Characters that the encoding lacks (in the C locale
    all but ASCII) become `?`.
    """
    codecs.register_error("klog-terminal", _to_terminal)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="klog-terminal")


def _to_terminal(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    first = error.object[error.start]  # the encoder reports a run, which may hold both kinds
    if "\udc80" <= first <= "\udcff":
        return first.encode("ascii", "surrogateescape"), error.start + 1
    return "?", error.start + 1


def _output_failed(error: OSError) -> int:
    _discard_output()
    if error.errno == errno.EPIPE:
        return 0
    cures = {errno.ENOSPC: "free some space", errno.EBADF: "it is closed: redirect it to a file or /dev/null"}
    cure = cures.get(error.errno or 0)
    return _failed(StorageError(f"standard output cannot be written: {error.strerror}", cure=cure))


def _discard_output() -> None:
    """Discard buffered output, so that the interpreter does not write it again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
