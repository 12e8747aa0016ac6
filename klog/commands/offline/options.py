"""Options that the commands for files of a log directory share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Paths = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH...", readable=False, help="Segments, partition directories or log directories."
    ),
]
PartitionPaths = Annotated[
    list[Path],
    typer.Argument(metavar="PATH...", readable=False, help="Partition directories or log directories."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what the command would do; change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Delete or cut without asking.")]
IndexIntervalBytes = Annotated[int, typer.Option(min=0, help="The topic's index.interval.bytes.")]
IndexMaxBytes = Annotated[int, typer.Option(min=12, help="The topic's segment.index.bytes.")]
JsonPerPartition = Annotated[bool, typer.Option("--json", help="Print one JSON object per partition.")]
QuietUnlessChanged = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress; print only what is changed.")
]
