"""Opens the delegation tokens of the cluster, if the brokers have a secret for them."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from klog.config.broker import BrokerConfig
from klog.formats.names import encode_uuid
from klog.metadata.store import MetadataStore
from klog.security.authentication.delegation_tokens import KnownTokens, TokenLimits
from klog.security.authentication.token_store import TokenStore
from klog.storage.log.scheduler import Scheduler


def open_tokens(
    config: BrokerConfig,
    store: MetadataStore,
    clock_ms: Callable[[], int],
    scheduler: Scheduler,
    is_controller: Callable[[], bool],
) -> TokenStore | None:
    """The tokens that the tree has; None without `delegation.token.secret.key`. Raises `StoreError`.

    The controller removes those that have expired.
    """
    secret = config.text("delegation.token.secret.key") or config.text("delegation.token.master.key")
    if not secret:
        return None
    limits = TokenLimits(
        config.number("delegation.token.max.lifetime.ms"), config.number("delegation.token.expiry.time.ms")
    )
    tokens = TokenStore(store, KnownTokens(secret), limits, clock_ms, _new_id)
    tokens.follow()

    def check() -> None:
        if is_controller():
            tokens.remove_expired()

    scheduler.every(config.number("delegation.token.expiry.check.interval.ms"), check)
    return tokens


def _new_id() -> str:
    return encode_uuid(uuid.uuid4().bytes)
