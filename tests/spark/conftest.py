"""One Spark session for all tests of this room; without PySpark or Java they are skipped, loudly."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.conftest import PEER_SKIP_PREFIX
from tests.peers.maven import PeerUnavailableError
from tests.spark import sessions
from tests.spark.combined import Combined, combine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two task slots, in which Spark has found `klog` by itself."""
    require_spark()
    with sessions.session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def combined(tmp_path_factory: pytest.TempPathFactory) -> Combined:
    """All corpora as one log directory."""
    return combine(tmp_path_factory.mktemp("combined") / "logs")


def require_spark() -> None:
    try:
        sessions.require_spark()
    except PeerUnavailableError as missing:
        if os.environ.get("CI") == "true" and os.environ.get("KLOG_REQUIRE_PEERS") == "1":
            pytest.fail(f"Spark is required here (KLOG_REQUIRE_PEERS=1): {missing}", pytrace=False)
        pytest.skip(f"{PEER_SKIP_PREFIX}: {missing}")
