"""Lets several commands share a set of options, so that each option is stated once.

A set is a dataclass whose fields are annotated as typer's options, or stated with `optional`. `option_set`
makes one whose options are in one panel of the help. A command of a `CommandGroup` takes the dataclass as one
parameter, and may state options of its own as defaults.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import Field, dataclass, field, fields, is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any, Final, TypeVar, dataclass_transform, get_type_hints

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo

Command = Callable[..., None]
_Value = TypeVar("_Value")
_OPTION: Final = "option"
_ALONE: Final = "without value"


def optional(
    default: _Value,
    summary: str,
    *names: str,
    least: float | None = None,
    most: float | None = None,
    panel: str | None = None,
    without_value: Mapping[str, str] | None = None,
    **values: Any,  # noqa: ANN401 (typer's own)
) -> _Value:
    """The default of a field of a set, or of a parameter of a command, that is an option.

    It is in a panel of the help. Without `names` it is called as its field is. `without_value` has the values
    that names of the option stand for if none follows. `values` are further ones of typer's options:
    `metavar`, `envvar`, `show_default`, `hidden`.
    """
    made = typer.Option(*names, help=summary, min=least, max=most, rich_help_panel=panel, **values)
    declared: _Value = field(default=default, metadata={_OPTION: made, _ALONE: without_value or {}})
    return declared


def valued(metavar: str, summary: str, *names: str, **values: Any) -> Any:  # noqa: ANN401 (of the field's type)
    """As `optional`, for an option that has no default: its value is None if it is not given."""
    return optional(None, summary, *names, metavar=metavar, **values)


def argument(metavar: str, summary: str) -> Any:  # noqa: ANN401 (of the field's type)
    """As `valued`, for an argument that need not be given."""
    return field(
        default=None, metadata={_OPTION: typer.Argument(metavar=metavar, help=summary, show_default=False)}
    )


def flag(summary: str, *names: str, panel: str | None = None, hidden: bool = False) -> bool:
    """As `optional`, for an option without a value."""
    return optional(False, summary, *names, panel=panel, hidden=hidden)


_Set = TypeVar("_Set")


@dataclass_transform(frozen_default=True)
def option_set(panel: str) -> Callable[[type[_Set]], type[_Set]]:
    """Make a set of a class, whose options are in a panel of the help unless they name another."""

    def made(kind: type[_Set]) -> type[_Set]:
        for declared in vars(kind).values():
            info = declared.metadata.get(_OPTION) if isinstance(declared, Field) else None
            if isinstance(info, OptionInfo) and info.rich_help_panel is None:
                info.rich_help_panel = panel
        return dataclass(frozen=True, slots=True)(kind)

    return made


class CommandGroup(typer.Typer):
    """Subcommands that take sets of options."""

    def command(self, name: str, **values: Any) -> Callable[[Command], Command]:  # type: ignore[override]  # noqa: ANN401
        """Add a function as a subcommand; `values` are further ones of typer's commands."""

        def add(command: Command) -> Command:
            expanded, alone = expand_options(command)
            super(CommandGroup, self).command(name, cls=taking_optional_values(alone), **values)(expanded)
            return expanded

        return add


def expand_options(command: Command) -> tuple[Command, dict[str, str]]:
    """The command with the options of its sets in the order of its parameters.

    Also the values of options that may have none, by the names of the options.
    """
    signature = inspect.signature(command, eval_str=True)
    sets: dict[str, type[Any]] = {}
    options: list[Parameter] = []
    alone: dict[str, str] = {}
    for parameter in signature.parameters.values():
        kind = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            sets[parameter.name] = kind
            options += _options_of(kind)
            alone |= _alone(*fields(kind))
        elif isinstance(parameter.default, Field):
            options.append(_declared(parameter.name, parameter.default, kind))
            alone |= _alone(parameter.default)
        else:
            options.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**values: object) -> None:
        made = {
            name: kind(**{each.name: values.pop(each.name) for each in fields(kind) if each.name in values})
            for name, kind in sets.items()
        }
        command(**values, **made)

    run.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run, alone


def _alone(*declared: Field[Any]) -> dict[str, str]:
    return {name: value for each in declared for name, value in each.metadata.get(_ALONE, {}).items()}


def _options_of(kind: type[Any]) -> list[Parameter]:
    types = get_type_hints(kind, include_extras=True)
    return [_declared(each.name, each, types[each.name]) for each in fields(kind)]


def _declared(name: str, declared: Field[Any], kind: Any) -> Parameter:  # noqa: ANN401 (a type, or Annotated)
    """The parameter of a field, whose option is stated in its annotation or in its default."""
    made = copy(declared.metadata.get(_OPTION))
    if (
        isinstance(made, OptionInfo) and made.default is ...
    ):  # where typer has the first name in an annotation
        made.default = "--" + name.strip("_").replace("_", "-")
    annotation = kind if made is None else Annotated[kind, made]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=declared.default, annotation=annotation)


def taking_optional_values(defaults: Mapping[str, str]) -> type[TyperCommand]:
    """The class of a command whose options in `defaults` may have no value: then they have the default."""

    class WithOptionalValues(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 (click's own signature)
            try:
                return super().parse_args(ctx, list(with_values(args, defaults)))
            except Exception as error:
                # An option without its value is an error without the command, whose usage is then not said.
                if getattr(error, "ctx", ctx) is None:
                    error.ctx = ctx  # type: ignore[attr-defined]
                raise

    return WithOptionalValues


def with_values(args: Sequence[str], defaults: Mapping[str, str]) -> Iterator[str]:
    """The arguments, with the default behind each option of `defaults` that no value follows."""
    for number, argument in enumerate(args):
        yield argument
        has_value = number + 1 < len(args) and not args[number + 1].startswith("-")
        if argument in defaults and not has_value:
            yield defaults[argument]
