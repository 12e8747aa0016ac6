"""Options of the commands that write indexes: the topic's configs on which their content depends."""

from __future__ import annotations

from typing import Annotated

import typer

IndexIntervalBytes = Annotated[int, typer.Option(min=0, help="The topic's index.interval.bytes.")]
IndexMaxBytes = Annotated[int, typer.Option(min=12, help="The topic's segment.index.bytes.")]
