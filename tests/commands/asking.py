"""The rule of every command that deletes or overwrites (docs/commands.md), held by each of their tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from tests.commands.running import Run
from tests.waiting import eventually


def keeps_to_the_rule(
    klog: Run, name: str, target: Sequence[object], look: Callable[[], object]
) -> list[dict[str, Any]]:
    """Off a terminal the command `name` changes nothing without `--yes`, nor with `--dry-run`: `look` shows
    the same as before. With `--yes` it does not. Returns the rows that say what was done.
    """
    command = [*name.split(), *target]
    before = look()
    unasked = klog(*command)
    assert (unasked.code, "--yes" in unasked.err) == (1, True), unasked
    assert look() == before
    dry = klog(*command, "--dry-run", "-o", "json")
    assert dry.code == 0, dry.err
    assert json.loads(dry.out)
    assert look() == before
    done = klog(*command, "--yes", "-o", "json")
    assert done.code == 0, done.err
    rows: list[dict[str, Any]] = json.loads(done.out)
    assert rows
    assert [each["error"] for each in rows] == [None] * len(rows)
    eventually(lambda: look() != before)
    return rows
