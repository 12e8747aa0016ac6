"""Verification of a log directory's own files, except its partitions."""

from __future__ import annotations

from pathlib import Path

from klog.metadata.embedded import FILE_NAME, EmbeddedStore
from klog.storage.repair.verify_log_directory import METADATA_STORE, verify_log_directory


def test_klogs_own_metadata_store_is_known_even_while_it_is_open(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / FILE_NAME)
    try:
        store.create("/node")
        written = {file.name for file in tmp_path.iterdir()}
        assert written == {METADATA_STORE, f"{METADATA_STORE}-wal"}
        # klog needs no shared memory, but another tool that reads the store leaves its file.
        (tmp_path / f"{METADATA_STORE}-shm").write_bytes(b"")
        assert verify_log_directory(str(tmp_path), ()) == []
    finally:
        store.close()


def test_an_unknown_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "other.sqlite").write_bytes(b"")
    (problem,) = verify_log_directory(str(tmp_path), ())
    assert problem.what == "has no name of Kafka's"
