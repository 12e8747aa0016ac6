"""The examples of the README and the docs run as written, and print the output that is shown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpora import REPOSITORY
from tests.docs.console import console_examples, run_console

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


README = console_examples((REPOSITORY / "README.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("command", "shown"), README)
def test_the_readme_shows_what_its_commands_print(command: str, shown: str) -> None:
    printed = run_console(command, REPOSITORY)
    assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines()


def test_the_readme_shows_every_offline_command() -> None:
    shown = {command.split()[1] for command, _ in README}
    assert shown >= {"dump-segment", "verify", "recover", "formats"}
