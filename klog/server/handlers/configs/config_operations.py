"""Operations on one resource's configs (KIP-339): SET, DELETE, APPEND, SUBTRACT."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from klog.config.keys import ConfigKey, Type, text_of
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.refusals import RefusedError

_SEPARATOR: Final = ","


class OperationType(IntEnum):
    """As in the request."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Operation(NamedTuple):
    """One change; `value` is None only where one is deleted."""

    name: str
    type: OperationType
    value: str | None


def operation(name: str, number: int, value: str | None) -> Operation:
    """Raises `RefusedError` for a number that is no operation's."""
    if number not in list(OperationType):
        # Kafka fails here with an unexpected error.
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return Operation(name, OperationType(number), value)


def applied(
    operations: Iterable[Operation], present: Mapping[str, str], keys: Mapping[str, ConfigKey]
) -> dict[str, str]:
    """The configs after the operations. Raises `RefusedError`."""
    configs = dict(present)
    for each in operations:
        match each.type:
            case OperationType.SET:
                configs[each.name] = each.value or ""
            case OperationType.DELETE:
                configs.pop(each.name, None)
            case OperationType.APPEND:
                members = _members(each, configs, keys)
                members += [one for one in _members_of(each.value) if one not in members]
                configs[each.name] = _SEPARATOR.join(members)
            case OperationType.SUBTRACT:
                members = _members(each, configs, keys)
                for one in _members_of(each.value):
                    if one in members:
                        members.remove(one)
                configs[each.name] = _SEPARATOR.join(members)
    return configs


def _members(each: Operation, configs: Mapping[str, str], keys: Mapping[str, ConfigKey]) -> list[str]:
    """What the list holds now, be it by default."""
    key = keys.get(each.name)
    if key is None:
        # Kafka fails here because of the unknown name, and its clients see that error.
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
    if key.type is not Type.LIST:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"Config value {each.type.name.lower()} is not allowed for config key: {each.name}",
        )
    present = configs.get(each.name, text_of(key.default))
    return _members_of(present) if present else []


def _members_of(text: str | None) -> list[str]:
    """As Java splits: empty members at the end go, and no text at all is one that is empty."""
    members = (text or "").split(_SEPARATOR)
    while len(members) > 1 and not members[-1]:
        members.pop()
    return [] if members == [""] and text else members
