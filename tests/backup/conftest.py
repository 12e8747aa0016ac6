"""A repository in a temporary directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backup.recorded import Recorded, recording
from tests.backup.repositories import Backups


@pytest.fixture
def backups(tmp_path: Path) -> Backups:
    return Backups(tmp_path / "repository")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """An empty log directory of a stopped broker."""
    directory = tmp_path / "logs"
    directory.mkdir()
    (directory / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=abc\n")
    return directory


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """Backups of a broker that transactional clients wrote to."""
    with recording(str(tmp_path_factory.mktemp("repository"))) as found:
        yield found
