"""Warns of ACLs and quotas in the metadata store that klog does not enforce.

Rules: the paths of Kafka's `ZkData` (`/kafka-acl`, `/kafka-acl-extended`). Quotas of addresses are configs of
ips; those of users and client ids are enforced.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from klog.formats.errors import KlogError
from klog.metadata import paths, znodes
from klog.metadata.errors import NoNodeError
from klog.metadata.store import MetadataStore

_log = logging.getLogger(__name__)

_ACL_ROOTS: Final = (("/kafka-acl", 2), ("/kafka-acl-extended", 3))
_QUOTA: Final = "connection_creation_rate"


def report_unenforced_metadata(store: MetadataStore, *, enforces_acls: bool = False) -> None:
    """Log a warning if the tree has ACLs or quotas. What cannot be read is an error line."""
    try:
        if not enforces_acls and any(True for root, depth in _ACL_ROOTS for _ in _below(store, root, depth)):
            _log.warning(
                "the metadata has ACLs, and authorizer.class.name is not set: every client can do everything"
            )
        limited = list(_with_quotas(store))
    except KlogError as error:
        _log.error("the ACLs and quotas in the metadata could not be read: %s", error)
        return
    if limited:
        _log.warning("the metadata has quotas of addresses, and klog enforces none: %s", ", ".join(limited))


def _with_quotas(store: MetadataStore) -> Iterator[str]:
    """The entities that have quotas, as Kafka names them: `ips/10.0.0.1`."""
    for name in _children(store, paths.config("ips")):
        if _QUOTA in _config(store, f"ips/{name}"):
            yield znodes.desanitize(f"ips/{name}")


def _config(store: MetadataStore, entity: str) -> dict[str, str]:
    (node,) = store.get_many([paths.config(entity)])
    return {} if node is None else znodes.decode_config(entity, node.data)


def _below(store: MetadataStore, root: str, depth: int) -> Iterator[str]:
    """The nodes `depth` levels below a node."""
    for name in _children(store, root):
        path = f"{root}/{name}"
        yield from (path,) if depth == 1 else _below(store, path, depth - 1)


def _children(store: MetadataStore, path: str) -> list[str]:
    try:
        return store.children(path)
    except NoNodeError:
        return []
