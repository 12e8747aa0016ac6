"""The options that several subcommands of `klog reassign` have."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klog.commands.shared.messages import print_note
from klog.commands.shared.option_sets import argument, valued
from klog.commands.shared.usage import missing
from klog.formats.errors import MissingInputError, UsageError

if TYPE_CHECKING:
    from klog.admin.reassign.values import PartitionAssignment

_STDIN: Final = "-"

LogDirTimeout = Annotated[
    int,
    typer.Option(
        "--timeout",
        metavar="MS",
        min=0,
        help="How long to try to begin moves between log directories.",
    ),
]
PreserveThrottles = Annotated[
    bool, typer.Option("--preserve-throttles", help="Leave the throttles as they are.")
]


@dataclass(frozen=True, slots=True)
class AssignmentFile:
    """The file that says where partitions are to be."""

    argument: str | None = argument("[FILE]", "Kafka's reassignment JSON; `-` is stdin.")
    reassignment_json_file: str | None = valued("FILE", "The same as FILE.")

    @property
    def name(self) -> str | None:
        """The name that was given, None for none. Raises UsageError for two."""
        if self.argument is not None and self.reassignment_json_file is not None:
            raise UsageError("FILE and --reassignment-json-file both name a file")
        return self.argument or self.reassignment_json_file

    def read(self, *, as_kafka: bool) -> list[PartitionAssignment]:
        """The assignments in the file. Raises MissingInputError, FormatError.

        An empty list, which `plan` writes if all is as wanted, is told and read as that, unless `as_kafka`.
        """
        from klog.admin.reassign.json_files import parse_assignments

        name = self.name
        if name is None:
            raise missing("FILE or --reassignment-json-file")
        try:
            data = sys.stdin.buffer.read() if name == _STDIN else Path(name).read_bytes()
        except OSError as error:
            raise MissingInputError(f"cannot be read: {error.strerror}", file=name) from error
        file = "stdin" if name == _STDIN else name
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
        found = parse_assignments(text, file, may_be_empty=not as_kafka)
        if not found:
            print_note(f"{file} names no partition: there is nothing to move")
        return found
