"""Recipes: `nox -l` lists them, `nox -s full` runs one, and words after `--` go to its command.

Each runs the command that README.md states for its readers, in the environment that this command makes.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import nox

nox.options.sessions = ["quick"]
nox.options.default_venv_backend = "none"

README = Path(__file__).with_name("README.md")
PYTHON = ".venv-test/bin/python"


def readme_command() -> tuple[str, str]:
    """README's test command: what makes the environment, and what runs the tests."""
    found = re.search(r"<!-- test-command -->\n```sh\n(.+)\n```", README.read_text())
    if found is None:
        raise SystemExit("README.md has no code block of one line after <!-- test-command -->")
    environment, _, tests = found[1].rpartition(" && ")
    return environment, tests


def run(session: nox.Session, *commands: str) -> None:
    """Run the commands one after the other in one shell. Words after `--` end the last one."""
    words = " ".join(map(shlex.quote, session.posargs))
    session.run("bash", "-euo", "pipefail", "-c", f"{' && '.join(commands)} {words}", external=True)


@nox.session
def quick(session: nox.Session) -> None:
    """The quick tier of the tests."""
    run(session, *readme_command())


@nox.session
def full(session: nox.Session) -> None:
    """All tests."""
    environment, tests = readme_command()
    run(session, environment, f"{tests} --tier full")


@nox.session
def peers(session: nox.Session) -> None:
    """The tests that run real Kafka. Maven gets it before they start."""
    environment, tests = readme_command()
    run(session, environment, f"{PYTHON} -m tests.peers", f"{tests} --tier full -m kafka")


@nox.session
def bench(session: nox.Session) -> None:
    """Benchmarks: `nox -s bench -- text index`."""
    environment, _ = readme_command()
    run(session, environment, f"{PYTHON} -m benchmarks.run")


@nox.session
def wheel(session: nox.Session) -> None:
    """The wheel of this Python and machine, in dist/."""
    run(session, ".ci/wheel dist")
