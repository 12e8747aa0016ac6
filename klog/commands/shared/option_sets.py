"""Lets several commands share a group of options, so that each option is stated once.

A group is a dataclass whose fields are annotated as typer's options, or stated with `optional`. A command
takes the dataclass as one parameter; `expand_options` puts the options in its place before typer looks at the
command.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, field, fields, is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo

Command = Callable[..., None]
_Value = TypeVar("_Value")
_OPTION: Final = "option"


def option(
    panel: str | None,
    summary: str,
    *names: str,
    metavar: str | None = None,
    least: int | None = None,
    envvar: str | None = None,
    show_default: bool = True,
    hidden: bool = False,
) -> OptionInfo:
    """An option in a panel of the help; without `names` it is called as its field is."""
    info: OptionInfo = typer.Option(
        *names,
        metavar=metavar,
        help=summary,
        min=least,
        envvar=envvar,
        show_default=show_default,
        hidden=hidden,
        rich_help_panel=panel,
    )
    return info


def optional(
    default: _Value,
    panel: str | None,
    summary: str,
    *names: str,
    metavar: str | None = None,
    least: int | None = None,
    envvar: str | None = None,
    show_default: bool = True,
    hidden: bool = False,
) -> _Value:
    """The field of a group that has a default and such an option (see `option`)."""
    made = option(
        panel,
        summary,
        *names,
        metavar=metavar,
        least=least,
        envvar=envvar,
        show_default=show_default,
        hidden=hidden,
    )
    declared: _Value = field(default=default, metadata={_OPTION: made})
    return declared


def expand_options(command: Command) -> Command:
    """The command with the options of its groups in the order of its parameters."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, type[Any]] = {}
    options: list[Parameter] = []
    for parameter in signature.parameters.values():
        kind = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            groups[parameter.name] = kind
            options += _options_of(kind)
        else:
            options.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**values: object) -> None:
        made = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**values, **made)

    run.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def _options_of(group: type[Any]) -> list[Parameter]:
    types = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            each.name,
            Parameter.KEYWORD_ONLY,
            default=each.default,
            annotation=_annotation(each, types[each.name]),
        )
        for each in fields(group)
    ]


def _annotation(declared: Field[Any], kind: Any) -> Any:  # noqa: ANN401 (a type, or Annotated)
    made = declared.metadata.get(_OPTION)
    return kind if made is None else Annotated[kind, made]


def taking_optional_values(defaults: Mapping[str, str]) -> type[TyperCommand]:
    """The class of a command whose options in `defaults` may have no value: then they have the default."""

    class WithOptionalValues(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 (click's own signature)
            return super().parse_args(ctx, list(with_values(args, defaults)))

    return WithOptionalValues


def with_values(args: Sequence[str], defaults: Mapping[str, str]) -> Iterator[str]:
    """The arguments, with the default behind each option of `defaults` that no value follows."""
    for number, argument in enumerate(args):
        yield argument
        has_value = number + 1 < len(args) and not args[number + 1].startswith("-")
        if argument in defaults and not has_value:
            yield defaults[argument]
