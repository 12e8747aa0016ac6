"""DescribeUserScramCredentials and AlterUserScramCredentials: users with SCRAM passwords (KIP-554).

Rules: Kafka's `KafkaApis` and `ZkAdminManager`. Any broker describes them, the controller changes them.
Credentials are in the metadata tree; a note there tells every broker about a change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from klog.formats.errors import FormatError, KlogError
from klog.metadata.configs import read_config, valid_configs
from klog.metadata.entity_configs import update_config
from klog.metadata.paths import DEFAULT_ENTITY
from klog.metadata.store import MetadataStore
from klog.metadata.znodes import sanitize
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.security.authentication.scram_administration import (
    Deletion,
    Refusal,
    Upsertion,
    changed_config,
    described_names,
    iterations_in,
    refusals,
    unknown_user,
)
from klog.server.handlers.answers import Struct, entity_of, send_answer
from klog.server.handlers.refusals import NOT_CONTROLLER, RefusedError, error_fields, refusal_of
from klog.server.network.request import Request


@dataclass(frozen=True, slots=True)
class ScramUsersHandler:
    """Answers both requests."""

    store: MetadataStore
    is_controller: Callable[[], bool]

    def describe(self, request: Request) -> None:
        """Answer with the mechanisms and iterations of users: of those that are named, or of all."""
        asked = entity_of(request).users
        try:
            results = self._of_all() if not asked else self._of_named([each.name for each in asked])
        except KlogError as error:
            send_answer(request, **error_fields(refusal_of(error)), results=())
            return
        send_answer(request, error_code=ErrorCode.NONE, error_message=None, results=results)

    def _of_all(self) -> list[Struct]:
        configs, _ = valid_configs(self.store, "users")
        described = {user: _described(user, configs[user]) for user in sorted(configs)}
        return [result for result in described.values() if result is not None]

    def _of_named(self, names: list[str]) -> list[Struct]:
        results: list[Struct] = []
        for name, refusal in described_names(names):
            found = None if refusal is not None else _described(name, read_config(self.store, _path(name)))
            results.append(found or _result(name, refusal or unknown_user(name)))
        return results

    def alter(self, request: Request) -> None:
        """Set and remove credentials, those of each user together."""
        asked = entity_of(request)
        upsertions, deletions = _upsertions(asked), _deletions(asked)
        users = dict.fromkeys([*(each.user for each in upsertions), *(each.user for each in deletions)])
        if not self.is_controller():
            elsewhere = _refusal_of(NOT_CONTROLLER)
            send_answer(request, results=[_result(user, elsewhere) for user in users])
            return
        refused = refusals(upsertions, deletions)
        for user in [each for each in users if each not in refused]:
            refusal = self._alter_user(
                user,
                [each for each in upsertions if each.user == user],
                [each for each in deletions if each.user == user],
            )
            if refusal is not None:
                refused[user] = refusal
        done = [user for user in users if user not in refused]
        results = [_result(user, why) for user, why in refused.items()]
        send_answer(request, results=[*results, *(_result(user, None) for user in done)])

    def _alter_user(
        self, user: str, upsertions: list[Upsertion], deletions: list[Deletion]
    ) -> Refusal | None:
        def change(config: dict[str, str]) -> Mapping[str, str]:
            changed = changed_config(config, upsertions, deletions)
            if isinstance(changed, Refusal):
                raise RefusedError(*changed)
            return changed

        try:
            update_config(self.store, _path(user), change)
        except KlogError as error:
            return _refusal_of(error)
        return None


def _path(user: str) -> str:
    # A user of this name is not the default of users.
    return "users/" + ("%3Cdefault%3E" if user == DEFAULT_ENTITY else sanitize(user))


def _upsertions(asked: Entity) -> list[Upsertion]:
    return [
        Upsertion(each.name, each.mechanism, each.iterations, each.salt, each.salted_password)
        for each in asked.upsertions
    ]


def _deletions(asked: Entity) -> list[Deletion]:
    return [Deletion(each.name, each.mechanism) for each in asked.deletions]


def _described(user: str, config: Mapping[str, str]) -> Struct | None:
    """A user with its credentials; None if it has none."""
    try:
        found = iterations_in(config)
    except FormatError as error:
        return _result(user, _refusal_of(error))
    if not found:
        return None
    credentials = [{"mechanism": number, "iterations": count} for number, count in found.items()]
    return {**_result(user, None), "credential_infos": credentials}


def _refusal_of(error: KlogError) -> Refusal:
    refused = refusal_of(error)
    return Refusal(refused.error, refused.message or "")


def _result(user: str, refusal: Refusal | None) -> Struct:
    """What happened to a user; it has the fields of both answers."""
    error, message = (ErrorCode.NONE, None) if refusal is None else refusal
    return {"user": user, "error_code": error, "error_message": message, "credential_infos": ()}
