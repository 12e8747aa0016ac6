"""Writes SCRAM credentials into a broker's metadata without asking a broker: before the first start nobody
could log in to ask for it.

In ZooKeeper it may be done at any time, as by `kafka-configs --zookeeper`: running brokers hear of it. The
embedded store belongs to its broker, which must not run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack, closing

from klog.config.broker import BrokerConfig
from klog.metadata.cluster import create_persistent_nodes
from klog.metadata.entity_configs import update_config
from klog.metadata.znodes import sanitize
from klog.security.authentication.scram_credentials import ScramCredential
from klog.server.startup.settings import log_directories
from klog.server.startup.stores import open_store
from klog.storage.files.directory_lock import locked
from klog.storage.files.files import storage_error


def set_credentials(config: BrokerConfig, user: str, credentials: Mapping[str, ScramCredential]) -> None:
    """Sets a user's credentials by mechanism. Raises ConfigError, StorageError, StoreError."""
    with ExitStack() as opened:
        directory = ""
        if not config.text("zookeeper.connect"):
            directory = log_directories(config)[0]
            try:
                os.makedirs(directory, exist_ok=True)
            except OSError as error:
                raise storage_error("cannot be made", directory, error) from error
            opened.enter_context(locked(directory))
        store = opened.enter_context(closing(open_store(config, directory)))
        create_persistent_nodes(store)
        texts = {mechanism: each.text() for mechanism, each in credentials.items()}
        update_config(store, f"users/{sanitize(user)}", lambda present: {**present, **texts})
