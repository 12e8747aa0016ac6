"""Keeps the delegation tokens of the metadata tree at hand, and changes them.

Rules: Kafka's `DelegationTokenManagerZk`. A notification tells all brokers to read a token's node again. The
broker that writes does so before it answers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from klog.metadata.cluster import create_persistent_nodes
from klog.metadata.errors import InvalidZnodeError, NoNodeError
from klog.metadata.notifications import Notifications
from klog.metadata.retried_writes import put, write
from klog.metadata.store import Create, Delete, MetadataStore
from klog.protocol.error_codes import ErrorCode
from klog.security.authentication import token_znodes
from klog.security.authentication.delegation_tokens import (
    DelegationToken,
    KnownTokens,
    TokenLimits,
    expired,
    issued,
    renewed,
)
from klog.security.principal import KafkaPrincipal

_log: Final = logging.getLogger(__name__)


class TokenStore:
    """The tokens of a tree. Safe for threads.

    `now_ms` is the wall clock, `new_id` makes a random id. Requests raise `StoreError`, `InvalidZnodeError`.
    """

    def __init__(
        self,
        store: MetadataStore,
        known: KnownTokens,
        limits: TokenLimits,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self.known = known
        self._store = store
        self._limits = limits
        self._now_ms = now_ms
        self._new_id = new_id
        # One request after the other: they read a token, decide, and write it.
        self._changing = threading.Lock()
        # Held while a node is read and taken, so that no older state replaces a newer one.
        self._reading = threading.Lock()
        self._notifications = Notifications(store, token_znodes.CHANGES, self._on_note, now_ms)

    def follow(self) -> None:
        """Reads all tokens and watches for changes. Must be called again for a new session.

        One that cannot be read is an error line. Raises `StoreError`.
        """
        create_persistent_nodes(self._store, token_znodes.PERSISTENT)
        self._notifications.follow()
        present = self._store.children(token_znodes.TOKENS)
        for gone in {each.token_id for each in self.known.all()} - set(present):
            self._refresh(gone)
        for token_id in present:
            try:
                self._refresh(token_id)
            except InvalidZnodeError as error:
                _log.error("A delegation token is ignored: %s", error)

    def create(
        self,
        owner: KafkaPrincipal,
        requester: KafkaPrincipal,
        renewers: Collection[KafkaPrincipal],
        lifetime_ms: int,
    ) -> DelegationToken:
        """A new token of an owner."""
        with self._changing:
            token = issued(
                self._new_id(), owner, requester, renewers, lifetime_ms, self._limits, self._now_ms()
            )
            self._write(token)
        _log.info("Created delegation token %s of %s", token.token_id, owner)
        return token

    def renew(self, client: KafkaPrincipal, token_hmac: bytes, period_ms: int) -> DelegationToken | ErrorCode:
        """The token with this HMAC, renewed; or why the client may not do that."""
        with self._changing:
            token = self.known.by_hmac(token_hmac)
            changed = renewed(token, client, period_ms, self._limits, self._now_ms())
            if isinstance(changed, DelegationToken):
                self._write(changed)
                _log.info("Renewed delegation token %s of %s", changed.token_id, changed.owner)
        return changed

    def expire(self, client: KafkaPrincipal, token_hmac: bytes, period_ms: int) -> int | ErrorCode:
        """Sets when the token with this HMAC expires, or removes it. Returns when it expires, in ms of the
        wall clock, or why the client may not do that.
        """
        with self._changing:
            now_ms, token = self._now_ms(), self.known.by_hmac(token_hmac)
            changed = expired(token, client, period_ms, now_ms)
            if isinstance(changed, ErrorCode):
                return changed
            if changed is not None:
                self._write(changed)
                _log.info("Changed when delegation token %s of %s expires", changed.token_id, changed.owner)
                return changed.expires_ms
            if token is not None:
                self._remove(token)
        return now_ms

    def remove_expired(self) -> None:
        """Removes the tokens that have expired, from the tree too. The controller does so now and then."""
        with self._changing:
            now_ms = self._now_ms()
            for token in self.known.all():
                if token.is_over(now_ms):
                    self._remove(token)

    def _write(self, token: DelegationToken) -> None:
        put(self._store, token_znodes.token_path(token.token_id), token_znodes.encode_token(token))
        self._tell(token.token_id)

    def _remove(self, token: DelegationToken) -> None:
        with suppress(NoNodeError):  # another broker has removed it
            write(self._store, Delete(token_znodes.token_path(token.token_id)))
        self._tell(token.token_id)
        _log.info("Removed delegation token %s of %s", token.token_id, token.owner)

    def _tell(self, token_id: str) -> None:
        self._refresh(token_id)
        write(self._store, Create(token_znodes.CHANGE_PREFIX, token_id.encode(), sequential=True))

    def _on_note(self, path: str, data: bytes | None) -> None:
        self._refresh(token_znodes.decode_change(path, data))

    def _refresh(self, token_id: str) -> None:
        """Reads a token. Raises `StoreError`, `InvalidZnodeError`; then it is what it was."""
        with self._reading:
            node = self._store.get_many([token_znodes.token_path(token_id)])[0]
            token = None if node is None else token_znodes.decode_token(token_id, node.data)
            if token is None:
                self.known.remove(token_id)
            else:
                self.known.put(token)
