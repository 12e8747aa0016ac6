"""Figures of klog beside those of its peers, as `--json` keeps them and `benchmarks.compare` reads them."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

_DIGITS = 4  # the others are noise


@dataclass(frozen=True)
class Row:
    """One figure. `load` says what was measured and in which unit; `ratio` is klog's figure to the peer's."""

    name: str
    load: str
    klog: float
    peer: float
    ratio: float


@dataclass(frozen=True)
class Rows:
    """The figures of one benchmark, which adds them as it has measured them."""

    name: str = ""
    taken: list[Row] = field(default_factory=list)

    def add(self, load: str, klog: float, peer: float) -> None:
        """Keep a figure. Without a figure of the peer there is nothing to compare."""
        if peer:
            klog, peer, ratio = (float(f"{each:.{_DIGITS}g}") for each in (klog, peer, klog / peer))
            self.taken.append(Row(self.name, load, klog, peer, ratio))


def as_json(machine: str, how: Mapping[str, int], rows: Sequence[Row]) -> str:
    """The text of a file of results. `how` has the options that they depend on."""
    head = {"version": version("klog"), "machine": machine, "python": platform.python_version()}
    return json.dumps({**head, **how, "rows": list(map(asdict, rows))}, indent=1) + "\n"


def read(path: Path) -> tuple[Mapping[str, str | int], list[Row]]:
    """What `as_json` wrote: its head and its rows. Raises ValueError with the file if it is none."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        rows = [Row(**each) for each in found.pop("rows")]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is no file of `benchmarks.run --json`: {error}") from error
    return found, rows
