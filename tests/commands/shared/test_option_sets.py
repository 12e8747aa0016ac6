"""Groups of options that commands share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from klog.commands.shared.option_sets import CommandGroup, argument, flag, optional


@dataclass(frozen=True, slots=True)
class Size:
    """Two options that belong together."""

    width: Annotated[int, typer.Option("--width", "-w", min=1)] = 2
    height: Annotated[int | None, typer.Option()] = None


@dataclass(frozen=True)
class NamedSize(Size):
    """A group that replaces an option of another one and adds one."""

    width: Annotated[int, typer.Option("--width", min=10)] = 10
    name: str = optional("", "How it is called.", panel="Names", metavar="NAME")


app = CommandGroup()


@app.command("plain")
def plain(size: Size, loud: bool = flag("Be loud.")) -> None:
    """Print what was given."""
    typer.echo((size, loud))


@app.command("repeat")
def repeat(
    words: list[str] | None = argument("[WORD]...", "What to say."),
    count_s: int = optional(1, "How often.", "--count", "-c", most=9, without_value={"-c": "2"}),
) -> None:
    """Print what was given."""
    typer.echo((words, count_s))


@app.command("named")
def named(times: Annotated[int, typer.Argument()] = 1, *, size: NamedSize) -> None:
    """Print what was given."""
    typer.echo((size, times))


def run(*arguments: str):
    return CliRunner().invoke(app, arguments)


def test_a_command_gets_the_options_of_a_group_as_one_value():
    assert run("plain", "-w", "3", "--loud").stdout == f"{(Size(3, None), True)}\n"
    assert run("named", "7", "--name", "x").stdout == f"{(NamedSize(10, None, 'x'), 7)}\n"


def test_options_that_are_not_given_have_the_defaults_of_the_group():
    assert run("plain").stdout == f"{(Size(), False)}\n"


def test_limits_of_a_groups_options_hold():
    assert run("plain", "--width", "0").exit_code == 2
    assert run("named", "--width", "9").exit_code == 2


def test_the_help_lists_the_options_of_a_group():
    shown = run("plain", "--help").stdout
    assert all(option in shown for option in ("--width", "--height", "--loud"))
    assert "Print what was given." in shown


def test_an_option_may_be_stated_as_a_default():
    assert NamedSize().name == ""
    text = run("named", "--help").stdout
    assert "Names" in text
    assert "How it is called." in text


def test_a_parameter_states_its_option_as_its_default():
    assert run("repeat", "a", "b").stdout == f"{(['a', 'b'], 1)}\n"
    assert run("repeat", "--count", "3").stdout == f"{(None, 3)}\n"
    assert run("repeat", "--count", "10").exit_code == 2
    assert run("plain", "--no-loud").exit_code == 2


def test_an_option_may_say_what_it_means_without_a_value():
    assert run("repeat", "a", "-c").stdout == f"{(['a'], 2)}\n"
    assert run("repeat", "-c", "3", "a").stdout == f"{(['a'], 3)}\n"
    assert run("repeat", "--count").exit_code == 2
