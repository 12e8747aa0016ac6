"""`klog formats`: the list, and the layout of one format."""

from __future__ import annotations

import json
import os
import pty
import sys

import pytest
from typer.testing import CliRunner

from klog.commands.main import app
from klog.formats import catalogue
from klog.formats.errors import UsageError
from tests.processes import child

run = CliRunner()


def test_without_a_name_every_format_is_listed() -> None:
    result = run.invoke(app, ["formats"])
    assert result.exit_code == 0
    listed = [line.split()[0] for line in result.stdout.splitlines()[1:]]
    assert listed == [entry.name for entry in catalogue.FORMATS]


@pytest.mark.parametrize("name", [entry.name for entry in catalogue.FORMATS])
def test_a_layout_is_drawn_as_text_and_as_json(name: str) -> None:
    text = run.invoke(app, ["formats", name])
    assert text.exit_code == 0
    assert text.stdout.startswith(f"{name}: ")
    assert "OFFSET" in text.stdout
    machine = run.invoke(app, ["formats", name, "--json"])
    rows = [json.loads(line) for line in machine.stdout.splitlines()]
    assert rows
    assert all(set(row) == set(rows[0]) for row in rows)
    # The text has every row, too.
    assert all(row["name"] in text.stdout for row in rows)


def test_columns_line_up_when_piped() -> None:
    lines = run.invoke(app, ["formats", "producer-snapshot"]).stdout.splitlines()
    header = next(line for line in lines if line.startswith("OFFSET"))
    column = header.index("TYPE")
    fields = lines[lines.index(header) + 1 :]
    assert fields
    assert all(line[column - 1] == " " and line[column] != " " for line in fields)


def test_an_unknown_name_is_wrong_usage() -> None:
    result = run.invoke(app, ["formats", "no-such-format"])
    assert isinstance(result.exception, UsageError)


def test_a_terminal_gets_a_table_with_colours() -> None:
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    command = "from klog.commands.main import app; app(['formats', 'producer-snapshot'])"
    with child(
        [sys.executable, "-c", command],
        stdout=theirs,
        env=environment | {"COLUMNS": "150", "TERM": "xterm-256color"},
    ) as process:
        os.close(theirs)
        shown = _read_terminal(ours)
    os.close(ours)
    assert process.returncode == 0
    assert b"\x1b[" in shown
    assert b"producerEpoch" in shown


def _read_terminal(descriptor: int) -> bytes:
    shown = b""
    while True:
        try:
            shown += os.read(descriptor, 65536)
        except OSError:  # on Linux the error for a closed other end
            return shown
