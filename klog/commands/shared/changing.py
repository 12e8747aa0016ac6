"""The options of every command that changes something in a cluster, and how it says what it did.

A command that deletes or overwrites what no other command brings back asks on a terminal; elsewhere it needs
`--yes` (docs/commands.md, "Commands that change something").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import typer

from klog.commands.shared.messages import print_error, print_note, print_report
from klog.commands.shared.option_sets import flag
from klog.commands.shared.output import OutputOptions
from klog.commands.shared.tables import Row
from klog.formats.errors import KlogError


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one thing: its name, its fields for programs, what was done, or why it failed."""

    name: str
    fields: Row
    done: str
    error: KlogError | None = None


@dataclass(frozen=True, slots=True)
class ChangeOptions(OutputOptions):
    """Whether to change anything, and how to print what was done."""

    dry_run: bool = flag("Only say what would change; change nothing.", "--dry-run", "--validate-only")

    def conclude(self, outcomes: Sequence[Outcome], *, summary: str = "") -> None:
        """Say what was done: to people on stderr, to programs as rows with `result` and `error` on stdout.

        People get `summary`, if given, in place of a line for each. Exits with 1 if something failed.
        """
        for each in outcomes:
            if each.error is not None:
                print_error(each.error)
            elif self.for_people and not summary:
                print_report(f"{each.name}: {each.done}")
        if self.for_people and summary:
            print_report(summary)
        if self.dry_run and self.for_people:
            print_note("nothing was changed (--dry-run)")
        if not self.for_people:
            self.show([_row(each) for each in outcomes])
        if any(each.error is not None for each in outcomes):
            raise typer.Exit(1)


def exit_if_failed(errors: Iterable[object]) -> None:
    """Print the errors; exit with 1 if there are any."""
    failures = [each for each in errors if each is not None]
    for failure in failures:
        print_error(failure)
    if failures:
        raise typer.Exit(1)


def _row(outcome: Outcome) -> dict[str, object]:
    failed = outcome.error is not None
    return {
        **outcome.fields,
        "result": "failed" if failed else outcome.done,
        "error": str(outcome.error) if failed else None,
    }
