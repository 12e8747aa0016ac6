"""Recognises the configs of a KRaft node. It loads nothing that reads metadata: every start runs it."""

from __future__ import annotations

import os

from klog.config.broker import BrokerConfig
from klog.formats.errors import StorageError
from klog.formats.meta_properties import MetaProperties
from klog.server.startup.settings import log_directories
from klog.storage.log.data_directory import DataDirectory


def require_no_kraft(config: BrokerConfig, file: str | None) -> None:
    """Refuses the configs of a KRaft node, unless its directories were taken over. Changes nothing.

    Raises `StorageError`.
    """
    roles = config["process.roles"]
    if not isinstance(roles, tuple) or not roles:
        return
    versions = {each.version for each in map(_identity, log_directories(config)) if each is not None}
    if versions == {0}:
        return
    kind = "a combined KRaft node (broker and controller)" if len(roles) > 1 else f"a KRaft {roles[0]}"
    own_id = config.explicit("node.id")
    node = "" if own_id is None else f", node {own_id}"
    raise StorageError(
        f"these are the configs of {kind}{node}, and klog has no KRaft",
        file=file,
        cure="stop the node; then 'klog adopt' with the same options takes its metadata over",
    )


def _identity(directory: str) -> MetaProperties | None:
    return DataDirectory(directory).read_identity() if os.path.isdir(directory) else None
