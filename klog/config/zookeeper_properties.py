"""Translates the server.properties of a KRaft broker for Kafka 3.9 with ZooKeeper, or for klog.

Rules: `kraft_names`, and the values that 3.9 takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from klog.config.broker import KEYS_BY_NAME, LISTENER_PREFIX
from klog.config.keys import ConfigError
from klog.config.kraft_names import ADDED, AUTHORIZERS, OF_KRAFT, STANDARD_AUTHORIZER
from klog.config.properties_draft import (
    Draft,
    Outcome,
    Translation,
    changed_defaults,
    drop_all,
    drop_mapping,
    is_of_kraft,
    set_listeners,
    split,
    without,
)
from klog.formats.errors import UsageError
from klog.formats.java_properties import PropertyLine

_LARGEST_ID: Final = 1000
"""The default of reserved.broker.max.id."""


def to_zookeeper(lines: Sequence[PropertyLine], zookeeper_connect: str | None = None) -> Translation:
    """The file of a broker of Kafka 3.9 with ZooKeeper; of klog with its own tree if the address is empty.

    Raises UsageError for a file that is not of a KRaft node, or of one that is no broker.
    """
    draft = Draft(list(lines))
    values = draft.values
    if not is_of_kraft(values):
        raise UsageError("these are not the configs of a KRaft node: process.roles is not set")
    if "broker" not in map(str.strip, values["process.roles"].split(",")):
        raise UsageError("the node is a controller only", cure="name the file of a broker")
    own = set(split(values.get("controller.listener.names", "")))
    for name in ("listeners", "advertised.listeners"):
        if name in values:
            set_listeners(draft, name, without(values[name], own), "without those of controllers")
    drop_mapping(draft, own)
    for name in draft.values:
        if LISTENER_PREFIX.match(name) and name.split(".")[2] in {each.lower() for each in own}:
            draft.drop(name, "of a listener of controllers")
    if "broker.id" in draft.values:
        draft.drop("node.id", "broker.id is there")
    elif "node.id" in draft.values:
        draft.rename("node.id", ("broker.id",), "it is broker.id")
    broker_id = draft.values.get("broker.id", "").strip()
    if broker_id.isdigit() and int(broker_id) > _LARGEST_ID:
        text = f"broker.id is above {_LARGEST_ID} (reserved.broker.max.id)"
        draft.add("broker.id.generation.enable", "false", text)
    if draft.values.get("authorizer.class.name", "").strip() == STANDARD_AUTHORIZER:
        draft.change("authorizer.class.name", AUTHORIZERS[0], f"{STANDARD_AUTHORIZER} needs KRaft")
    drop_all(draft, (OF_KRAFT, ADDED))
    _drop_refused(draft)
    if zookeeper_connect is None:
        draft.note("zookeeper.connect", Outcome.DECIDE, "where ZooKeeper is")
    elif zookeeper_connect:
        draft.add("zookeeper.connect", zookeeper_connect, "it was given")
    changed_defaults(
        draft,
        lambda default: f"is not set; 3.9 has {default.before}, 4.1 had {default.after}",
        (OF_KRAFT, ADDED),
    )
    return draft.finished("Of a broker with ZooKeeper")


def _drop_refused(draft: Draft) -> None:
    """Values that only Kafka 4 takes."""
    for name, text in draft.values.items():
        key = KEYS_BY_NAME.get(LISTENER_PREFIX.sub("", name))
        if key is None or "${" in text:
            continue
        try:
            key.parse(text)
        except ConfigError:
            draft.drop(name, "3.9 refuses its value; the default counts")
