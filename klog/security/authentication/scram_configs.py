"""Keeps the SCRAM credentials that a broker knows as the metadata tree has them (`/config/users/USER`)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from klog.metadata.configs import read_config, valid_configs
from klog.metadata.errors import InvalidZnodeError
from klog.metadata.store import MetadataStore
from klog.metadata.znodes import desanitize
from klog.security.authentication.scram_credentials import ScramCredentials

_log = logging.getLogger(__name__)

_USERS: Final = "users"


@dataclass(frozen=True, slots=True)
class ScramConfigs:
    """Reads credentials again when a note names their user."""

    store: MetadataStore
    credentials: ScramCredentials

    def load(self) -> None:
        """Reads all users: at the start, and in a new session. What cannot be read is an error line."""
        configs, invalid = valid_configs(self.store, _USERS)
        for user, found in configs.items():
            self.credentials.user_changed(user, found)
        self.credentials.keep_only(configs.keys())
        for user, why in invalid.items():
            _log.error("The SCRAM credentials of user %s are ignored: %s", user, why)

    def on_change(self, entity_path: str) -> None:
        """A note has come: `users/alice`. Those of other configs do nothing."""
        kind, _, name = entity_path.partition("/")
        if kind != _USERS or not name or "/" in name:
            return
        try:
            self.credentials.user_changed(desanitize(name), read_config(self.store, entity_path))
        except InvalidZnodeError as error:
            _log.error("The SCRAM credentials of %s stay as they are: %s", entity_path, error)
