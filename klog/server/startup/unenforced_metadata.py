"""Warns of ACLs in the metadata store that klog does not enforce.

Rules: the paths of Kafka's `ZkData` (`/kafka-acl`, `/kafka-acl-extended`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from klog.formats.errors import KlogError
from klog.metadata.store import MetadataStore, children_of

_log = logging.getLogger(__name__)

_ACL_ROOTS: Final = (("/kafka-acl", 2), ("/kafka-acl-extended", 3))


def report_unenforced_metadata(store: MetadataStore, *, enforces_acls: bool = False) -> None:
    """Log a warning if the tree has ACLs that are not enforced. What cannot be read is an error line."""
    try:
        if not enforces_acls and any(True for root, depth in _ACL_ROOTS for _ in _below(store, root, depth)):
            _log.warning(
                "the metadata has ACLs, and authorizer.class.name is not set: every client can do everything"
            )
    except KlogError as error:
        _log.error("the ACLs in the metadata could not be read: %s", error)


def _below(store: MetadataStore, root: str, depth: int) -> Iterator[str]:
    """The nodes `depth` levels below a node."""
    for name in children_of(store, root):
        path = f"{root}/{name}"
        yield from (path,) if depth == 1 else _below(store, path, depth - 1)
