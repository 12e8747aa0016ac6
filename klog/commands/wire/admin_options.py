"""What the options of the commands that change topics and configs have in common."""

from __future__ import annotations

from typing import Annotated

import typer

ValidateOnly = Annotated[bool, typer.Option("--validate-only", help="Only ask whether it could be done.")]
