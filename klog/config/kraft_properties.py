"""Translates the server.properties of a broker with ZooKeeper for a node of Kafka 4.1.

Rules: `kraft_names`. What a person has to decide is named: addresses and security of the controllers, say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from klog.config.kraft_names import (
    AUTHORIZERS,
    GONE,
    JMX_REPORTER,
    LEAST,
    STANDARD_AUTHORIZER,
)
from klog.config.properties_draft import (
    Draft,
    Outcome,
    Translation,
    changed_defaults,
    drop_all,
    drop_mapping,
    is_of_kraft,
    pair,
    set_listeners,
    split,
    without,
)
from klog.formats.errors import UsageError
from klog.formats.java_properties import PropertyLine

_CONTROLLER: Final = "CONTROLLER"
_DEFAULT_LISTENERS: Final = "PLAINTEXT://:9092"
_JMX: Final = "auto.include.jmx.reporter"
_BEFORE, _AFTER = "log.message.timestamp.before.max.ms", "log.message.timestamp.after.max.ms"
_DIFFERENCE: Final = "log.message.timestamp.difference.max.ms"
_OLD_KEY, _NEW_KEY = "delegation.token.master.key", "delegation.token.secret.key"
_OLD_ADDRESSES: Final = {
    "listeners": ("host.name", "port"),
    "advertised.listeners": ("advertised.host.name", "advertised.port"),
}


@dataclass(frozen=True, slots=True)
class KRaftNode:
    """What a file with ZooKeeper does not say of a node: its roles, its id if brokers got theirs by
    themselves (None: that of the file), and the voters (`1@host:port,...`, None: to be decided).
    """

    roles: tuple[str, ...] = ("broker",)
    node_id: int | None = None
    voters: str | None = None


def to_kraft(lines: Sequence[PropertyLine], node: KRaftNode) -> Translation:
    """The file of a node of Kafka 4.1. Raises UsageError for one that is of a KRaft node already."""
    draft = Draft(list(lines))
    if is_of_kraft(draft.values):
        raise UsageError("these are the configs of a KRaft node already (process.roles)")
    for step in (
        _old_addresses,
        _without_control_plane,
        _renamed_to_kraft,
        _authorizer_to_kraft,
        _reporters_to_kraft,
        _limits_to_kraft,
    ):
        step(draft)
    drop_all(draft, (GONE,))
    _roles(draft, node)
    _controller_listeners(draft, node)
    changed_defaults(draft, lambda default: f"is not set; 4.1 has {default.after}, 3.9 had {default.before}")
    return draft.finished("Of KRaft")


def _old_addresses(draft: Draft) -> None:
    """Addresses as brokers before 3.0 knew them."""
    for new, (host, port) in _OLD_ADDRESSES.items():
        values = draft.values
        if host not in values and port not in values:
            continue
        if new not in values:
            address = f"PLAINTEXT://{values.get(host, '').strip()}:{values.get(port, '9092').strip()}"
            draft.add(new, address, f"{host} and {port} were removed in 3.0")
        for name in (host, port):
            if name in values:
                draft.drop(name, f"removed in 3.0; {new} has the address")


def _without_control_plane(draft: Draft) -> None:
    values = draft.values
    listener = values.get("control.plane.listener.name", "").strip()
    if listener:
        for name in ("listeners", "advertised.listeners"):
            if name in values:
                set_listeners(draft, name, without(values[name], {listener}), f"{listener} is of no use")
        drop_mapping(draft, {listener})


def _renamed_to_kraft(draft: Draft) -> None:
    values = draft.values
    if _DIFFERENCE in values:
        new = "log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms"
        draft.rename(_DIFFERENCE, (_BEFORE, _AFTER), f"{new} are its successors")
    if _OLD_KEY in values:
        draft.rename(_OLD_KEY, (_NEW_KEY,), f"it is {_NEW_KEY}")


def _authorizer_to_kraft(draft: Draft) -> None:
    name = "authorizer.class.name"
    found = draft.values.get(name, "").strip()
    if found in AUTHORIZERS:
        draft.change(
            name, STANDARD_AUTHORIZER, f"{found} needs ZooKeeper; {STANDARD_AUTHORIZER} has its rules"
        )
        if not draft.values.get("super.users"):
            text = (
                "brokers and controllers need to be super users, or ACLs that let them work (CLUSTER_ACTION)"
            )
            draft.note("super.users", Outcome.DECIDE, text)
    elif found and found != STANDARD_AUTHORIZER:
        draft.note(name, Outcome.DECIDE, f"whether {found} works without ZooKeeper")


def _reporters_to_kraft(draft: Draft) -> None:
    """Before 4.0 the reporter for JMX was there whether it was named or not."""
    values, name = draft.values, "metric.reporters"
    implied = values.get(_JMX, "true").strip().lower() != "false"
    named = [each.strip() for each in values.get(name, "").split(",") if each.strip()]
    if name in values and implied and JMX_REPORTER not in named:
        draft.change(name, ",".join([*named, JMX_REPORTER]), "4.0 has metrics in JMX only if they are named")
    elif name not in values and not implied:
        draft.add(name, "", "4.0 has metrics in JMX unless they are left out here")
    if _JMX in values:
        draft.drop(_JMX, "removed in 4.0; metric.reporters names the reporter for JMX")


def _limits_to_kraft(draft: Draft) -> None:
    for name, least in LEAST.items():
        text = draft.values.get(name, "").strip()
        if not text.lstrip("-").isdigit() or int(text) >= least:
            continue
        if int(text) < 0:
            draft.drop(name, "4.1 refuses negative values; its default is 10")
        else:
            draft.change(name, str(least), f"4.1 refuses less than {least}")


def _roles(draft: Draft, node: KRaftNode) -> None:
    values = draft.values
    roles = ",".join(node.roles)
    kept = values.get("node.id", values.get("broker.id", "")).strip()
    if node.node_id is not None:
        kept = str(node.node_id)
    # A variable of a config provider is kept.
    is_given = bool(kept) and kept != "-1"
    if "broker.id" in values and is_given:
        draft.rename("broker.id", ("node.id",), "it is node.id")
        if draft.values["node.id"] != kept:
            draft.change("node.id", kept, f"it is {kept}")
    else:
        if "broker.id" in values:
            draft.drop("broker.id", "it is node.id, and ids are not generated")
        if is_given:
            draft.set("node.id", kept, f"it is {kept}")
        else:
            text = "ids are not generated; the broker has the one in meta.properties (broker.id)"
            draft.note("node.id", Outcome.DECIDE, text)
    draft.add("process.roles", roles, f"the node is {' and '.join(node.roles)}")
    if "broker" not in node.roles:
        draft.note("node.id", Outcome.DECIDE, "a controller needs another id than each broker")
        draft.note("log.dirs", Outcome.DECIDE, "a controller needs a directory of its own")


def _controller_listeners(draft: Draft, node: KRaftNode) -> None:
    values = draft.values
    taken = {each.partition(":")[0].strip() for each in values.get("listeners", "").split(",")}
    name = _CONTROLLER if _CONTROLLER not in taken else "KRAFT_CONTROLLER"
    draft.add("controller.listener.names", name, f"the controllers' listener is {name}")
    voters = "controller.quorum.voters"
    if node.voters is None:
        draft.note(
            voters, Outcome.DECIDE, "id@host:port of each controller, or controller.quorum.bootstrap.servers"
        )
    else:
        draft.add(voters, node.voters, "the controllers were given")
    _controller_security(draft, name)
    if "controller" not in node.roles:
        return
    is_broker = "broker" in node.roles
    if not is_broker:
        for each in ("advertised.listeners", "inter.broker.listener.name", "security.inter.broker.protocol"):
            if each in values:
                draft.drop(each, "of brokers only")
    address = _own_address(node.voters, draft.values.get("node.id", ""))
    if address is not None:
        kept = split(values.get("listeners", _DEFAULT_LISTENERS)) if is_broker else []
        endpoints = ",".join([*kept, f"{name}://{address}"])
        draft.set("listeners", endpoints, f"with that of the controllers, {name}")
        return
    if "listeners" in values and not is_broker:
        draft.drop("listeners", "of brokers only")
    draft.note("listeners", Outcome.DECIDE, f"{name}://host:port, where this controller listens")


def _own_address(voters: str | None, node_id: str) -> str | None:
    for voter in (voters or "").split(","):
        voter_id, _, address = voter.strip().partition("@")
        if voter_id == node_id and address:
            return address
    return None


def _controller_security(draft: Draft, listener: str) -> None:
    """The controllers' listener gets the protocol of that between brokers."""
    values, mapping = draft.values, "listener.security.protocol.map"
    inter_broker = values.get("inter.broker.listener.name", "").strip()
    known = dict(pair(each) for each in split(values.get(mapping, "")))
    protocol = known.get(inter_broker, inter_broker) or values.get(
        "security.inter.broker.protocol", "PLAINTEXT"
    )
    named = [each.partition(":")[0] for each in split(values.get("listeners", _DEFAULT_LISTENERS))]
    # A map that is set has to name all listeners.
    pairs = known or {each: each for each in dict.fromkeys(named)}
    text = ",".join(f"{key}:{each}" for key, each in {**pairs, listener: protocol}.items())
    draft.set(mapping, text, f"{listener} has {protocol}, as the listener between brokers")
    if protocol.startswith("SASL"):
        between = values.get("sasl.mechanism.inter.broker.protocol")
        if between is not None:
            draft.add("sasl.mechanism.controller.protocol", between, "as between brokers")
    if protocol != "PLAINTEXT":
        own = f"listener.name.{listener.lower()}."
        text = f"{protocol} of {listener}: keys, or logins of nodes (SCRAM users must be in the metadata)"
        draft.note(f"{own}*", Outcome.DECIDE, text)
