"""Reads and changes configs of users, client ids and IP addresses: quotas, and credentials of users.

Rules: Kafka's AdminZkClient. `configs` has what holds for all configs. Several things may be in one config,
and several brokers may change it at once, so a change is conditional on the version that was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from klog.metadata import paths, znodes
from klog.metadata.configs import notify_of_change
from klog.metadata.errors import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError
from klog.metadata.retried_writes import create_missing, write
from klog.metadata.store import Create, Delete, MetadataStore, Node, SetData, children_of, missing_parents

_CLIENTS: Final = "/clients/"


def entity_nodes(store: MetadataStore) -> Iterator[tuple[str, Node]]:
    """The nodes of all users, clients of users, clients and addresses, by the entity's path."""
    found = [f"{kind}/{name}" for kind in ("users", "clients", "ips") for name in _children(store, kind)]
    for user in [each for each in found if each.startswith("users/")]:
        found += [f"{user}{_CLIENTS}{name}" for name in _children(store, f"{user}/clients")]
    nodes = store.get_many([paths.config(entity_path) for entity_path in found])
    for entity_path, node in zip(found, nodes, strict=True):
        if node is not None:
            yield entity_path, node


def update_config(
    store: MetadataStore, entity_path: str, change: Callable[[dict[str, str]], Mapping[str, str]]
) -> None:
    """Changes the config of a user, client id or address, then notifies every broker.

    `change` makes the new config from the present one, again if somebody else has changed it meanwhile. An
    entity without a config is removed, and so are the nodes above it that hold nothing else. Raises what
    `change` raises; then nothing has changed. Raises InvalidZnodeError, StoreError.
    """
    path = paths.config(entity_path)
    is_done = False
    while not is_done:
        node = store.get_many([path])[0]
        config = change({} if node is None else znodes.decode_config(entity_path, node.data))
        if config or _children(store, entity_path):
            is_done = _write(store, path, znodes.encode_config(config), node)
        else:
            is_done = _remove(store, path, node)
    _remove_empty_parents(store, entity_path)
    notify_of_change(store, entity_path)


def _write(store: MetadataStore, path: str, data: bytes, node: Node | None) -> bool:
    """Writes a node if it is still as it was read; whether it was."""
    if node is None:
        create_missing(store, missing_parents(path))
    try:
        write(store, Create(path, data) if node is None else SetData(path, data, node.stat.version))
    except (BadVersionError, NodeExistsError, NoNodeError):
        return False
    return True


def _remove(store: MetadataStore, path: str, node: Node | None) -> bool:
    """Removes a node if it is still as it was read; whether it was."""
    if node is None:
        return True
    try:
        write(store, Delete(path, node.stat.version))
    except (BadVersionError, NotEmptyError):
        return False
    except NoNodeError:
        pass
    return True


def _remove_empty_parents(store: MetadataStore, entity_path: str) -> None:
    """Removes the nodes of a user that hold nothing, above a client of the user."""
    user, _, client_id = entity_path.partition(_CLIENTS)
    if not client_id:
        return
    with suppress(NotEmptyError, NoNodeError, BadVersionError):
        write(store, Delete(paths.config(f"{user}/clients")))
        node = store.get_many([paths.config(user)])[0]
        if node is not None and not znodes.decode_config(user, node.data):
            write(store, Delete(paths.config(user), node.stat.version))


def _children(store: MetadataStore, entity_path: str) -> list[str]:
    return children_of(store, paths.config(entity_path))
