"""What a guard says of a request: pass, an answer without the handler, or a part for the handler.

The handler of a part gets a request without the resources that are refused. What was refused is added to its
answer. So handlers need not know of authorisation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from klog.protocol.acls import AclOperation, AclResourceType
from klog.protocol.entity_fields import Entity, Value, entity_fields
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import response_class
from klog.server.handlers.access import Access
from klog.server.handlers.answers import Struct, entity_of, send_answer, topic_errors
from klog.server.handlers.dispatch import Route
from klog.server.network.request import Amend, Request


class Answer(NamedTuple):
    """A whole answer, from fields of all versions; the others have their defaults."""

    values: Struct


class Part(NamedTuple):
    """What the handler gets, and what becomes of its answer."""

    wanted: Entity
    amend: Amend


Verdict = Answer | Part | None
Guard = Callable[[Access, Request, Entity], Verdict]


def guarded(route: Route, guard: Guard, access: Access) -> Route:
    """The route with a guard before its handler."""

    def handle(request: Request) -> None:
        request.entity = entity_of(request)
        verdict = guard(access, request, request.entity)
        if isinstance(verdict, Answer):
            if request.charge is not None:
                request.charge.refused = True
            fields = entity_fields(response_class(request.api_key, request.api_version))
            send_answer(request, **{field.name: field.default for field in fields} | dict(verdict.values))
            return
        if verdict is not None:
            request.entity, request.amend = verdict
        route.handle(request)

    return route._replace(handle=handle)


def not_authorized(request: Request) -> str:
    """What Kafka says of a request for which a right on the cluster is missing."""
    return f"Request {request!r} is not authorized."


def adding(field: str, refused: Sequence[Struct], *, unless_failed: bool = False) -> Amend:
    """Adds what was refused to a list of the answer; `unless_failed` an error says more."""

    def amend(values: Mapping[str, Value]) -> Mapping[str, Value]:
        if unless_failed and values.get("error_code"):
            return values
        return {**values, field: [*values[field], *refused]}

    return amend


def changing(field: str, change: Callable[[Struct], Struct | None]) -> Amend:
    """Changes each struct in a list of the answer; None leaves it out."""

    def amend(values: Mapping[str, Value]) -> Mapping[str, Value]:
        changed = (change(each) for each in values[field])
        return {**values, field: [each for each in changed if each is not None]}

    return amend


def with_list(wanted: Entity, field: str, items: Iterable[Entity]) -> Entity:
    """A request with other items in a list."""
    return dataclasses.replace(wanted, **{field: tuple(items)})


class Split(NamedTuple):
    """Items of a request: those that the client may use, and the others."""

    allowed: list[Entity]
    refused: list[Entity]


def split(
    access: Access,
    request: Request,
    operation: AclOperation,
    items: Sequence[Entity],
    name_of: Callable[[Entity], str] = lambda item: item.name,
    kind: AclResourceType = AclResourceType.TOPIC,
) -> Split:
    """Sort items by what the client may do with the resources that they name."""
    names = access.allowed(request, operation, kind, map(name_of, items))
    found = Split([], [])
    for item in items:
        (found.allowed if name_of(item) in names else found.refused).append(item)
    return found


def part_of_topics(
    access: Access,
    request: Request,
    wanted: Entity,
    operation: AclOperation,
    name_of: Callable[[Entity], str] = lambda item: item.name,
    **fields: Value,
) -> Verdict:
    """The topics that the client may use, and errors for the others, with further `fields`."""
    topics = split(access, request, operation, wanted.topics, name_of)
    if not topics.refused:
        return None
    refused = topic_errors(topics.refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED, **fields)
    return Part(with_list(wanted, "topics", topics.allowed), adding("topics", refused))
