"""Keeps the ACLs of the metadata tree at hand, and changes them.

Rules: Kafka's `AclAuthorizer` (`updateResourceAcls`, `createAcls`, `deleteAcls`). Every write is conditional
on the version that was read. A notification tells all brokers to read the pattern's node again. The broker
that writes does so before it answers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from klog.formats.errors import KlogError
from klog.metadata.cluster import create_persistent_nodes
from klog.metadata.errors import (
    BadVersionError,
    InvalidZnodeError,
    NodeExistsError,
    NoNodeError,
    StoreError,
)
from klog.metadata.notifications import Notifications
from klog.metadata.retried_writes import write
from klog.metadata.store import Create, Delete, MetadataStore, Node, Operation, SetData
from klog.protocol.acls import Acl, AclFilter, ResourcePattern
from klog.security.authorization import acl_znodes
from klog.security.authorization.acl_set import NO_ACLS, AclSet, by_pattern
from klog.security.authorization.filters import matches, matches_entry, matches_pattern, named_patterns

_TRIES_MAX: Final = 11

_log = logging.getLogger(__name__)

Change = Callable[[frozenset[Acl]], frozenset[Acl]]


class AclConflictError(StoreError):
    """Others changed the same ACLs each time that they were to be written."""


class AclStore:
    """The ACLs of a tree. Safe for threads.

    `acls` is another value after every change, so who remembers decisions can see that they are outdated.
    `pause` waits before another try of a write that met another one.
    """

    def __init__(
        self, store: MetadataStore, now_ms: Callable[[], int], pause: Callable[[], None] = lambda: None
    ) -> None:
        self.acls = NO_ACLS
        self._store = store
        self._pause = pause
        # Held while a node is read and its ACLs are taken, so that no older state replaces a newer one.
        self._lock = threading.Lock()
        self._notifications = [
            Notifications(store, parent, self._on_note, now_ms) for parent in acl_znodes.CHANGES.values()
        ]

    def follow(self) -> None:
        """Reads all ACLs and watches for changes. Must be called again for a new session.

        Raises `StoreError`, `InvalidZnodeError`.
        """
        create_persistent_nodes(self._store, acl_znodes.PERSISTENT)
        # First the changes, so that none is missed while all are read.
        for notifications in self._notifications:
            notifications.follow()
        with self._lock:
            self.acls = self._read_all()

    def matching(self, wanted: AclFilter) -> Iterator[Acl]:
        """The ACLs that a filter means, as far as this broker knows them."""
        return (acl for acl in self.acls if matches(wanted, acl))

    def add(self, acls: Iterable[Acl]) -> dict[ResourcePattern, KlogError | None]:
        """Writes ACLs, which may exist. Returns the error of each pattern."""
        errors: dict[ResourcePattern, KlogError | None] = {}
        for pattern, added in by_pattern(acls).items():
            try:
                self._update(pattern, added.__or__)
            except (StoreError, InvalidZnodeError) as error:
                errors[pattern] = error
            else:
                errors[pattern] = None
        return errors

    def remove(self, filters: Sequence[AclFilter]) -> list[dict[Acl, KlogError | None]]:
        """Deletes the ACLs that filters mean. Returns those of each filter, with the error if it remains.

        An ACL that several filters mean belongs to the first of them.
        """
        removed: list[dict[Acl, KlogError | None]] = [{} for _ in filters]
        for pattern in dict.fromkeys((*self.acls.by_pattern, *named_patterns(filters))):
            fitting = [each for each in enumerate(filters) if matches_pattern(each[1], pattern)]
            if fitting:
                found, error = self._remove(pattern, fitting)
                for acl, index in found.items():
                    removed[index][acl] = error
        return removed

    def _remove(
        self, pattern: ResourcePattern, fitting: Sequence[tuple[int, AclFilter]]
    ) -> tuple[dict[Acl, int], KlogError | None]:
        """The ACLs that were found, each with the index of its filter."""
        found: dict[Acl, int] = {}

        def rest(present: frozenset[Acl]) -> frozenset[Acl]:
            for acl in present:
                index = next((index for index, wanted in fitting if matches_entry(wanted, acl)), None)
                if index is not None:
                    found.setdefault(acl, index)
            return present - found.keys()

        if not acl_znodes.is_node_name(pattern.name):
            return found, None
        try:
            self._update(pattern, rest)
        except (StoreError, InvalidZnodeError) as error:
            return found, error
        return found, None

    def _update(self, pattern: ResourcePattern, change: Change) -> None:
        """Raises `StoreError`, `InvalidZnodeError`."""
        path = acl_znodes.pattern_path(pattern)
        for attempt in range(_TRIES_MAX):
            if attempt:
                self._pause()
            node = self._store.get_many([path])[0]
            present = acl_znodes.decode_acls(pattern, None if node is None else node.data)
            wanted = change(present)
            if wanted != present:
                try:
                    write(self._store, _change_of(path, node, wanted))
                except (BadVersionError, NodeExistsError, NoNodeError):
                    continue
                note = acl_znodes.encode_change(pattern)
                prefix = acl_znodes.change_prefix(pattern.pattern_type)
                write(self._store, Create(prefix, note, sequential=True))
            self._refresh(pattern)
            return
        raise AclConflictError(
            f"the ACLs of {pattern} were changed by others {_TRIES_MAX} times", path=path, cure="try again"
        )

    def _on_note(self, path: str, data: bytes | None) -> None:
        pattern = acl_znodes.decode_change(path, data)
        self._refresh(pattern)
        _log.info("the ACLs of %s have changed", pattern)

    def _refresh(self, pattern: ResourcePattern) -> None:
        """Raises `StoreError`, `InvalidZnodeError`; then the ACLs are what they were."""
        with self._lock:
            node = self._store.get_many([acl_znodes.pattern_path(pattern)])[0]
            acls = acl_znodes.decode_acls(pattern, None if node is None else node.data)
            if acls != self.acls.of(pattern):
                self.acls = self.acls.replaced(pattern, acls)

    def _read_all(self) -> AclSet:
        patterns: list[ResourcePattern] = []
        for pattern_type in acl_znodes.PATTERN_TYPES:
            for kind in acl_znodes.RESOURCE_TYPES:
                names = self._store.children(acl_znodes.type_path(pattern_type, kind))
                patterns += [ResourcePattern(kind, name, pattern_type) for name in names]
        nodes = self._store.get_many([acl_znodes.pattern_path(each) for each in patterns])
        return AclSet(
            {
                pattern: acl_znodes.decode_acls(pattern, node.data)
                for pattern, node in zip(patterns, nodes, strict=True)
                if node is not None
            }
        )


def _change_of(path: str, node: Node | None, wanted: frozenset[Acl]) -> Operation:
    if node is None:
        return Create(path, acl_znodes.encode_acls(wanted))
    if not wanted:
        return Delete(path, node.stat.version)
    return SetData(path, acl_znodes.encode_acls(wanted), node.stat.version)
