"""What a broker follows in the metadata tree beside its controller: configs, quotas, users, features, rights.

A new session has no watches, so all of it is read again then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from klog.metadata.configs import config_change_notifications
from klog.metadata.notifications import Notifications
from klog.metadata.store import MetadataStore
from klog.security.authentication.scram_configs import ScramConfigs
from klog.security.authentication.token_store import TokenStore
from klog.security.authorization.acl_store import AclStore
from klog.security.quotas.quota_configs import QuotaConfigs
from klog.server.handlers.configs.config_changes import ConfigChanges
from klog.server.startup.features import FeaturesEpoch


@dataclass(slots=True, eq=False)
class FollowedTree:
    """Reads these parts of the tree, and reads them again when they change. `clock_ms` is the wall clock.

    Without an authoriser there are no `acls`, without a secret for them no `tokens`.
    """

    store: MetadataStore
    changes: ConfigChanges
    quotas: QuotaConfigs
    users: ScramConfigs
    features: FeaturesEpoch
    acls: AclStore | None
    tokens: TokenStore | None
    clock_ms: Callable[[], int]
    _notes: Notifications = field(init=False)

    def follow(self) -> None:
        """Follow changes from now on; the configs were loaded. Raises `StoreError`."""
        self._notes = config_change_notifications(self.store, self._config_changed, self.clock_ms)
        self._notes.follow()
        self.features.follow()

    def _config_changed(self, entity_path: str) -> None:
        """A note in the tree names an entity whose config has changed."""
        for configs in (self.changes, self.quotas, self.users):
            configs.on_change(entity_path)

    def follow_again(self) -> None:
        """Read everything in a new session, and follow it. Raises `StoreError`."""
        for configs in (self.changes, self.quotas, self.users):
            configs.load()
        for followed in (self._notes, self.features, self.acls, self.tokens):
            if followed is not None:
                followed.follow()
