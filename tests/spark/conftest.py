"""One Spark session for all tests of this room; without PySpark or Java they are skipped, loudly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import give_up
from tests.peers.maven import PeerUnavailableError
from tests.peers.spark_kafka import spark_kafka_jars
from tests.spark import sessions
from tests.spark.combined import Combined, combine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two task slots, in which Spark has found `klog` by itself.

    It has Spark's own Kafka source too, where that can be had.
    """
    require_spark()
    jars = ",".join(map(str, _kafka_source() or ()))
    with sessions.session(tmp_path_factory.mktemp("spark"), jars) as session:
        yield session


@pytest.fixture(scope="session")
def spark_with_kafka(spark: SparkSession) -> SparkSession:
    """The same session; the test is skipped where Spark's Kafka source is not in it."""
    try:
        spark_kafka_jars()
    except PeerUnavailableError as missing:
        give_up("Spark", missing)
    return spark


def _kafka_source() -> list[Path] | None:
    try:
        return spark_kafka_jars()
    except PeerUnavailableError:
        return None  # told by the tests that need it


@pytest.fixture(scope="session")
def combined(tmp_path_factory: pytest.TempPathFactory) -> Combined:
    """All corpora as one log directory."""
    return combine(tmp_path_factory.mktemp("combined") / "logs")


def require_spark() -> None:
    """Skip, loudly, where there is no Spark; fail where it must be there."""
    try:
        sessions.require_spark()
    except PeerUnavailableError as missing:
        give_up("Spark", missing)
