"""The ZooKeeper server that the metadata room's tests use."""

from __future__ import annotations

from tests.metadata.conftest import zookeeper

__all__ = ["zookeeper"]
