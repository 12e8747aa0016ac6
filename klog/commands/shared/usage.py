"""Errors of the command line itself, as one line with the usage and the nearest name that exists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final

import typer

from klog.formats.errors import UsageError

_NO_COMMAND: Final = re.compile(r"No such command '(?P<name>.*?)'\.", re.DOTALL)
_EXTRA: Final = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((?P<given>.*)\)", re.DOTALL)
_NOT_A_CHOICE: Final = re.compile(r"'(?P<given>.*)' is not one of (?P<known>'.*')\.?", re.DOTALL)


def missing(what: str) -> typer.BadParameter:
    """The error for arguments that a command misses; raised in the command, it gets the command's usage."""
    return typer.BadParameter(f"missing {what}")


def usage_error(error: Any) -> UsageError:  # noqa: ANN401 (click's errors: their module depends on typer's version)
    """The error for one that the parser of options raised."""
    context = getattr(error, "ctx", None)
    if context is None:
        return UsageError(_small(str(error.format_message()).rstrip(".")))
    what, meant = _described(error, context)
    command = context.command_path.partition(" ")[2]
    about = f"usage: {usage(context)}; --help explains"
    return UsageError(f"{command}: {what}" if command else what, cure=f"{meant}; {about}" if meant else about)


def _described(error: Any, context: Any) -> tuple[str, str | None]:  # noqa: ANN401
    """What is wrong, and what may have been meant."""
    command, kind = context.command, type(error).__name__
    if kind == "MissingParameter":
        return f"missing {' and '.join(_missing(error.param, context))}", None
    if kind == "NoSuchOption":
        known = [name for one in command.params for name in one.opts if name.startswith("-")]
        known += getattr(command, "actions", ())  # flags of Kafka's tools
        return f"there is no option {error.option_name}", did_you_mean(error.option_name, known)
    if kind == "NoArgsIsHelpError" or error.message == "Missing command.":
        return "missing COMMAND", _known_commands(context)
    if found := _NO_COMMAND.match(error.message):
        from klog.commands.shared.other_names import name_here

        known = command.list_commands(context)
        here = name_here(context.command_path.partition(" ")[2], found["name"], known)
        meant = did_you_mean(found["name"], known) if here is None else f"it is called klog {here} here"
        return f"there is no command {found['name']}", meant or _known_commands(context)
    if kind == "BadParameter":
        text = error.message if error.param is None else error.format_message()
        return text.rstrip("."), _near_choice(error.message)
    if kind == "BadOptionUsage":
        return f"{error.option_name} needs a value", None
    if found := _EXTRA.match(error.message):
        pair = "=" in found["given"] and any("--set" in one.opts for one in command.params)
        meant = f"did you mean --set {found['given']}?" if pair else None
        return f"unexpected argument {found['given']}", meant
    return _small(str(error.format_message()).rstrip(".")), None


def _known_commands(context: Any) -> str:  # noqa: ANN401
    return f"known are {', '.join(context.command.list_commands(context))}"


def _near_choice(message: str) -> str | None:
    found = _NOT_A_CHOICE.search(message)
    return None if found is None else did_you_mean(found["given"], re.findall("'(.*?)'", found["known"]))


def did_you_mean(given: str, known: Iterable[str]) -> str | None:
    """The question for the known names that are nearest to the given one, None if none is near."""
    names = list(known)
    longer = [name for name in names if len(given) > 2 and name.startswith(given)]
    near = longer[:3] or get_close_matches(given, names, n=3)
    return f"did you mean {' or '.join(near)}?" if near else None


def _missing(first: Any, context: Any) -> Iterator[str]:  # noqa: ANN401
    """The required arguments and options without a value. The parser stops at the first of them."""
    for one in context.command.params:
        if one is first or (one.required and one.name not in context.params):
            yield one.opts[0] if one.param_type_name == "option" else _metavar(one)


def usage(context: Any) -> str:  # noqa: ANN401
    """The usage of a command in one line, with its required options."""
    options = [one for one in context.command.params if one.param_type_name == "option" and one.required]
    arguments = [one for one in context.command.params if one.param_type_name == "argument"]
    parts = [context.command_path, "[OPTIONS]"]
    parts += [f"{one.opts[0]} {one.metavar or 'VALUE'}" for one in options]
    parts += [_metavar(one) for one in arguments]
    if hasattr(context.command, "list_commands"):
        parts.append("COMMAND ...")
    return " ".join(parts)


def _metavar(argument: Any) -> str:  # noqa: ANN401
    text = str(argument.metavar or argument.name.upper())
    return text if argument.required or text.startswith("[") else f"[{text}]"


def _small(text: str) -> str:
    """The text as a clause: its first letter is small unless the word is all in capitals."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
