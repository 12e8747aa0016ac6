"""Completes words for a shell: formats, configs and names of the cluster, beside options and choices.

Only the process that a shell starts for a completion imports this. It asks a cluster for two seconds at
most, and says nothing if there is none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from klog.formats.errors import KlogError

_TIMEOUT_MS: Final = 2000
_TOPIC_OPTIONS: Final = {"--topic", "--topic-list", "--entity-name"}
_CONFIG_OPTIONS: Final = {"--config", "--set", "--add-config", "--append", "--subtract"}
_CONFIG_NAME_OPTIONS: Final = {"--delete", "--delete-config"}
_ON_CLUSTERS: Final = {
    *("topics", "configs", "produce", "consume", "groups", "transactions", "reassign"),
    *("offsets", "log-dirs", "delete-records", "elect-leader", "acls"),
}
_GROUP_COMMANDS: Final = {"groups", "consume", "offsets", "acls", "configs"}
_TRANSACTION_COMMANDS: Final = {"transactions", "produce", "acls"}
_BROKER_OPTIONS: Final = {"--broker", "--broker-list", "--broker-id", "--brokers", "--drain", "--add"}
_BROKER_COMMANDS: Final = {"configs", "brokers", "log-dirs", "transactions", "reassign"}
_OF_BROKERS: Final = {"serve", "adopt"}

Names = Callable[[Any], Iterable[str]]
"""Gives names for a parsed command line, as far as it is typed."""


class Suggestion(NamedTuple):
    """A completion, with the fields of click's `CompletionItem`."""

    value: str
    type: str = "plain"
    help: str | None = None


def add_completions(name: str, command: Any) -> None:  # noqa: ANN401 (click's, of typer's version)
    """Give the parameters of a command, and of its subcommands, what a shell completes there."""
    for subcommand in getattr(command, "commands", {}).values():
        add_completions(name, subcommand)
    for parameter in command.params:
        names = _names_for(name, command.name, parameter)
        if names is not None:
            parameter.shell_complete = _completing(names)


def _completing(names: Names) -> Callable[[Any, str], list[Suggestion]]:
    def shell_complete(context: Any, incomplete: str) -> list[Suggestion]:  # noqa: ANN401
        before, comma, last = incomplete.rpartition(",")
        with suppress(KlogError, OSError):
            return [
                Suggestion(f"{before}{comma}{name}")
                for name in sorted(names(context))
                if name.startswith(last)
            ]
        return []

    return shell_complete


def _names_for(command: str, subcommand: str | None, parameter: Any) -> Names | None:  # noqa: ANN401
    options = set(parameter.opts)
    is_argument = parameter.param_type_name == "argument"
    if command == "formats" and is_argument:
        return _formats
    if "--profile" in options or (command == "profile" and is_argument and subcommand != "add"):
        return _profiles
    if command in _OF_BROKERS and "--option" in options:
        return lambda _: [f"{name}=" for name in _broker_configs()]
    if command in _BROKER_COMMANDS and options & _BROKER_OPTIONS:
        return _brokers
    if command == "brokers" and is_argument and parameter.metavar == "ID":
        return _brokers
    if command == "cluster" and (is_argument or "--id" in options):
        return _registered_brokers
    if command in _TRANSACTION_COMMANDS and (
        "--transactional-id" in options or (is_argument and parameter.metavar == "ID")
    ):
        return _transactional_ids
    if options & _CONFIG_OPTIONS and command in {"topics", "configs", "clean"}:
        return lambda context: [f"{name}=" for name in _configs(context)]
    if options & _CONFIG_NAME_OPTIONS and command == "configs":
        return _configs
    if command in _GROUP_COMMANDS and ("--group" in options or (is_argument and _is_group(parameter))):
        return _groups
    takes_topics = bool(options & _TOPIC_OPTIONS) or (is_argument and "TOPIC" in str(parameter.metavar))
    return _topics if command in _ON_CLUSTERS and takes_topics and subcommand != "create" else None


def _formats(_: Any) -> Iterable[str]:  # noqa: ANN401
    from klog.formats import catalogue

    return [entry.name for entry in catalogue.FORMATS]


def _profiles(_: Any) -> Iterable[str]:  # noqa: ANN401
    from klog.admin.profiles import read_profiles, settings_path

    return read_profiles(settings_path(os.environ)).by_name


def _configs(context: Any) -> Iterable[str]:  # noqa: ANN401
    """Configs of topics, or of brokers if the command line names a broker."""
    from klog.config.topic_keys import KEYS

    given = context.params
    of_broker = given.get("broker") or given.get("broker_defaults") or given.get("entity_type") == "brokers"
    return _broker_configs() if of_broker else [key.name for key in KEYS]


def _broker_configs() -> Iterable[str]:
    from klog.config.broker import KEYS_BY_NAME

    return list(KEYS_BY_NAME)


def _topics(context: Any) -> Iterable[str]:  # noqa: ANN401
    from klog.admin.topics import find_topics

    with _cluster(context) as cluster:
        return [topic.name for topic in find_topics(cluster) if not topic.is_internal]


def _is_group(parameter: Any) -> bool:  # noqa: ANN401
    return "GROUP" in str(parameter.metavar)


def _groups(context: Any) -> Iterable[str]:  # noqa: ANN401
    from klog.admin.groups import list_groups

    with _cluster(context) as cluster:
        return [group.group_id for group in list_groups(cluster)]


def _brokers(context: Any) -> Iterable[str]:  # noqa: ANN401
    from klog.client.asking import broker_ids

    with _cluster(context) as cluster:
        return [str(broker_id) for broker_id in broker_ids(cluster)]


def _registered_brokers(context: Any) -> Iterable[str]:  # noqa: ANN401
    """Also the fenced ones, if the cluster tells them."""
    from klog.admin.requests.cluster_description import describe_nodes

    with _cluster(context) as cluster:
        return [str(each.broker_id) for each in describe_nodes(cluster).brokers]


def _transactional_ids(context: Any) -> Iterable[str]:  # noqa: ANN401
    from klog.admin.requests.transaction_admin import list_transactions

    with _cluster(context) as cluster:
        return [each.transactional_id for each in list_transactions(cluster)]


def _cluster(context: Any) -> Any:  # noqa: ANN401
    from klog.admin import connect
    from klog.admin.settings import settings_of
    from klog.commands.shared.client_properties import gather

    given = context.params
    bootstrap = given.get("bootstrap_server") or os.environ.get("KLOG_BOOTSTRAP_SERVER")
    profile = given.get("profile") or os.environ.get("KLOG_PROFILE")
    found = gather(profile, given.get("command_config"), given.get("command_property"), bootstrap, os.environ)
    return connect.cluster(settings_of(found.properties, bootstrap=bootstrap, timeout_ms=_TIMEOUT_MS))
