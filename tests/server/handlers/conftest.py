from __future__ import annotations

import pytest

from tests.server.handlers.admin_parts import AdminCluster
from tests.server.handlers.parts import Broker


@pytest.fixture
def broker(tmp_path) -> Broker:
    return Broker(tmp_path)


@pytest.fixture
def cluster() -> AdminCluster:
    return AdminCluster()
