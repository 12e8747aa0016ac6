"""The ZooKeeper server of the metadata package's tests."""

from __future__ import annotations

from tests.metadata.conftest import zookeeper

__all__ = ["zookeeper"]
