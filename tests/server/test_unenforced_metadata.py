"""ACLs in the tree, which klog does not enforce, are named at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.metadata import paths
from klog.metadata.embedded import FILE_NAME, EmbeddedStore
from klog.metadata.znodes import encode_config
from klog.server.startup.unenforced_metadata import report_unenforced_metadata


@pytest.fixture
def store(tmp_path: Path):
    opened = EmbeddedStore(tmp_path / FILE_NAME)
    yield opened
    opened.close()


def put(store: EmbeddedStore, entity: str, **config: str) -> None:
    store.create(paths.config(entity), encode_config(config), make_parents=True)


def test_nothing_is_said_without_acls(store, caplog: pytest.LogCaptureFixture) -> None:
    store.create("/kafka-acl/Topic", make_parents=True)
    store.create("/kafka-acl-extended/prefixed/Topic", make_parents=True)
    put(store, "users/bob", producer_byte_rate="1", **{"SCRAM-SHA-256": "x"})
    put(store, "topics/t", producer_byte_rate="1")
    report_unenforced_metadata(store)
    assert caplog.messages == []


@pytest.mark.parametrize("path", ["/kafka-acl/Topic/orders", "/kafka-acl-extended/prefixed/Topic/or"])
def test_acls_are_named(store, caplog: pytest.LogCaptureFixture, path: str) -> None:
    store.create(path, b"{}", make_parents=True)
    report_unenforced_metadata(store)
    (line,) = caplog.messages
    assert "ACLs" in line
