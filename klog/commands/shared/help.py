"""The help of commands: usage, text, examples that can be pasted, and options in their panels.

Names of options, values and commands are never cut or split, so that they can be typed.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, Final

from klog.commands.shared.messages import BOLD, paint
from klog.commands.shared.usage import usage

_MOST_COLUMNS: Final = 100
_LEFT_COLUMNS: Final = 26
_EXAMPLE: Final = re.compile(r"(?:^|\n)(?=\s*(?:klog|spark-submit|tail) )")


def write_help(command: Any, context: Any, formatter: Any) -> None:  # noqa: ANN401 (click's, of typer's version)
    """Write the help of a command; takes the place of click's `format_help`."""
    width = min(_MOST_COLUMNS, shutil.get_terminal_size().columns)
    lines = [f"Usage: {usage(context)}", *_text(command.help or "", width)]
    panels: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        if getattr(parameter, "hidden", False):
            continue
        is_option = parameter.param_type_name == "option"
        panel = getattr(parameter, "rich_help_panel", None) or ("Options" if is_option else "Arguments")
        row = _option(parameter, context) if is_option else _argument(parameter)
        panels.setdefault(panel, []).append(row)
    if hasattr(command, "list_commands"):
        panels["Commands"] = list(_commands(command, context))
    for title, rows in sorted(panels.items(), key=lambda panel: panel[0] not in ("Arguments", "Options")):
        lines += ["", paint(textwrap.fill(f"{title}:", width), BOLD, sys.stdout), *_rows(rows, width)]
    formatter.write("\n".join(lines) + "\n")


def _text(text: str, width: int) -> Iterator[str]:
    examples = False
    for paragraph in text.split("\n\n"):
        if _EXAMPLE.match(paragraph):
            if not examples:
                yield ""
            examples = True
            for each in _EXAMPLE.split(paragraph)[1:]:
                yield from _example(each, width)
            continue
        examples = False
        words = " ".join(paragraph.replace("`", "").split())
        yield ""
        yield from textwrap.wrap(words, width, break_long_words=False, break_on_hyphens=False)


def _example(text: str, width: int) -> Iterator[str]:
    """An example, in lines that a shell joins."""
    line = " ".join(text.split())
    parts = textwrap.wrap(
        line, width - 4, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    for number, part in enumerate(parts, 1):
        yield f"  {part}{' ' + chr(92) if number < len(parts) else ''}"


def _argument(parameter: Any) -> tuple[str, str]:  # noqa: ANN401
    name = str(parameter.metavar or parameter.name.upper()).replace("]...", "...").strip("[]{}")
    return name, (parameter.help or "").replace("`", "")


def _option(parameter: Any, context: Any) -> tuple[str, str]:  # noqa: ANN401
    names = ", ".join(sorted(parameter.opts, key=len))
    if parameter.secondary_opts:
        names = f"{names} / {', '.join(parameter.secondary_opts)}"
    if not parameter.is_flag and not parameter.count:
        names = f"{names} {parameter.metavar or _value_name(parameter)}"
    return names, " ".join(
        filter(None, [(parameter.help or "").replace("`", ""), *_notes(parameter, context)])
    )


def _value_name(parameter: Any) -> str:  # noqa: ANN401
    if getattr(parameter.type, "choices", None):
        return "NAME"
    return "N" if "Int" in type(parameter.type).__name__ else "VALUE"


def _notes(parameter: Any, context: Any) -> Iterator[str]:  # noqa: ANN401
    """What the parser knows of the value: choices, limits, default, the variable that replaces it."""
    if choices := getattr(parameter.type, "choices", None):
        yield f"[{', '.join(str(_plain(choice)) for choice in choices)}]"
    least, most = getattr(parameter.type, "min", None), getattr(parameter.type, "max", None)
    if least is not None:
        yield f"[at least {least}]" if most is None else f"[{least} to {most}]"
    if parameter.required:
        yield "[required]"
    default = _plain(parameter.get_default(context, call=False))
    if parameter.show_default and default not in (None, False, "", ()) and not parameter.is_flag:
        yield f"[default: {default}]"
    if parameter.envvar:
        yield f"[environment: {parameter.envvar}]"


def _plain(value: object) -> object:
    return value.value if isinstance(value, Enum) else value


def _commands(command: Any, context: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    for name in command.list_commands(context):
        subcommand = command.get_command(context, name)
        if not subcommand.hidden:
            yield name, " ".join((subcommand.help or "").split("\n\n")[0].split())


def _rows(rows: Iterable[tuple[str, str]], width: int) -> Iterator[str]:
    """Names to the left, text to the right; below the name if that is long."""
    found = list(rows)
    left = min(_LEFT_COLUMNS, max(len(name) for name, _ in found))
    indent = " " * (left + 4)
    for name, text in found:
        lead = f"  {name.ljust(left)}  "
        if len(name) > left:
            yield f"  {name}"
            lead = indent
        wrapped = textwrap.wrap(text, width - len(indent), break_long_words=False, break_on_hyphens=False)
        yield f"{lead}{wrapped[0] if wrapped else ''}".rstrip()
        yield from (f"{indent}{line}" for line in wrapped[1:])
