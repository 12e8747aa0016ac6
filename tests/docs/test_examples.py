"""The examples of the README and the docs run as written, and print the output that is shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpora import REPOSITORY

_CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "docs/library.md"])
def test_python_examples_run_as_written(page: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(REPOSITORY)
    blocks = _BLOCK.findall(Path(page).read_text(encoding="utf-8"))
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    assert "100 " in capsys.readouterr().out


@pytest.mark.parametrize("page", ["README.md", "docs/library.md"])
def test_python_examples_pass_a_strict_type_check(page: str, tmp_path: Path) -> None:
    blocks = _BLOCK.findall((REPOSITORY / page).read_text(encoding="utf-8"))
    program = tmp_path / "example.py"
    program.write_text("\n".join(blocks), encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(REPOSITORY / "pyproject.toml")]
    done = subprocess.run(
        [*command, "--cache-dir", str(tmp_path / "cache"), str(program)],
        cwd=REPOSITORY,
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def console_examples() -> list[tuple[str, str]]:
    """Every `$ command` of the README's console blocks, with the output shown below it."""
    found: list[tuple[str, str]] = []
    for block in _CONSOLE.findall((REPOSITORY / "README.md").read_text(encoding="utf-8")):
        for example in block.split("$ ")[1:]:
            command, _, output = example.partition("\n")
            found.append((command, output))
    return found


@pytest.mark.parametrize(("command", "shown"), console_examples())
def test_the_readme_shows_what_its_commands_print(command: str, shown: str) -> None:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["/bin/bash", "-c", f"{command} 2>&1"],
        cwd=REPOSITORY,
        env={**os.environ, "PATH": path, "COLUMNS": "116", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        check=False,
        text=True,
        encoding="utf-8",
    )
    assert [line.rstrip() for line in done.stdout.splitlines()] == shown.splitlines()


def test_the_readme_shows_every_offline_command() -> None:
    shown = {command.split()[1] for command, _ in console_examples()}
    assert shown >= {"dump-segment", "verify", "recover", "formats"}
