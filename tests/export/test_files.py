"""`klog.replicas.files` and `klog.replicas.remote`: local and remote files through one door."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats.errors import StorageError
from klog.replicas import files
from klog.replicas.remote import FIRST_READ_BYTES, LARGEST_READ_BYTES, RemoteFile, resolve
from klog.storage.files.files import read_at
from tests.export.object_store import ROOT, CountedFile, CountedFileSystem, counted_store


@pytest.fixture
def store() -> Iterator[CountedFileSystem]:
    with counted_store() as system:
        yield system


def test_a_local_file_is_read_by_path_and_by_uri(tmp_path: Path) -> None:
    path = tmp_path / "with space.log"
    path.write_bytes(b"0123456789")
    for name in (str(path), f"file://{path}", f"file:{path}", path.as_uri()):
        with files.open_input(name) as file:
            file.seek(4)
            buffer = bytearray(3)
            assert file.readinto(buffer) == 3  # type: ignore[attr-defined]
            assert buffer == b"456"
        assert not files.is_remote(name)
        assert files.exists(name)


@pytest.mark.parametrize("name", ["s3://b/k", "s3a://b/k", "gs://b/k", "abfs://c@a.dfs.core.windows.net/k"])
def test_uris_of_object_stores_are_remote(name: str) -> None:
    assert files.is_remote(name)
    assert files.parent(name) == name[: -len("/k")]
    assert files.base_name(name) == "k"


@pytest.mark.parametrize("name", ["a:b/c", "C:/logs", "/logs", "logs", "s3:/b/k", "t-0/x://y"])
def test_names_that_only_look_like_uris_are_local(name: str) -> None:
    assert not files.is_remote(name)


def test_options_of_a_uri_stay_at_its_end() -> None:
    base = "s3://bucket/logs/?endpoint_override=localhost:9000"
    child = files.join(base, "t-0", "x.log")
    assert child == "s3://bucket/logs/t-0/x.log?endpoint_override=localhost:9000"
    assert files.base_name(child) == "x.log"
    assert files.parent(child) == "s3://bucket/logs/t-0?endpoint_override=localhost:9000"


def test_s3a_is_the_store_that_s3_is() -> None:
    options = "?region=eu-west-1&endpoint_override=localhost:1"
    system, place = resolve(f"s3a://bucket/logs/t-0{options}")
    assert (system.type_name, place) == ("s3", "bucket/logs/t-0")
    assert resolve(f"s3://bucket/x{options}")[0] is system


def test_a_remote_directory_is_listed_with_sizes(store: CountedFileSystem) -> None:
    store.pipe({"/logs/t-0/b.log": b"12345", "/logs/t-0/a.log": b"1", "/logs/t-0/sub/x": b""})
    assert files.list_directory(f"{ROOT}/t-0") == [
        files.Entry("a.log", f"{ROOT}/t-0/a.log", False, 1),
        files.Entry("b.log", f"{ROOT}/t-0/b.log", False, 5),
        files.Entry("sub", f"{ROOT}/t-0/sub", True, 0),
    ]
    assert files.entry_of(f"{ROOT}/t-0/b.log") == files.Entry("b.log", f"{ROOT}/t-0/b.log", False, 5)
    assert not files.exists(f"{ROOT}/t-0/c.log")


def test_a_pattern_is_what_it_matches_by_name(store: CountedFileSystem, tmp_path: Path) -> None:
    for name in ("b-0/x.log", "a-0/x.log", "a-1/y.log"):
        store.pipe({f"/logs/{name}": b"1"})
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"1")
    for root in (ROOT, str(tmp_path)):
        assert files.expand(f"{root}/a-*") == [f"{root}/a-0", f"{root}/a-1"]
        assert files.expand(f"{root}/*-0/x.log") == [f"{root}/a-0/x.log", f"{root}/b-0/x.log"]
        assert files.expand(f"{root}/[ab]-1") == [f"{root}/a-1"]
        assert files.expand(f"{root}/c-*") == []
        assert files.expand(f"{root}/c-0") == [f"{root}/c-0"]
    (tmp_path / "[odd]").mkdir()
    assert files.expand(f"{tmp_path}/[odd]") == [f"{tmp_path}/[odd]"]


def test_local_links_that_lead_nowhere_are_listed_and_devices_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"123")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dir").mkdir()
    assert [(e.name, e.is_directory, e.size_bytes) for e in files.list_directory(str(tmp_path))] == [
        ("a.log", False, 3),
        ("dir", True, 0),
        ("gone", False, 0),
    ]


def test_a_remote_copy_that_is_gzipped_is_decompressed(store: CountedFileSystem) -> None:
    store.pipe({"/logs/x.log.gz": gzip.compress(b"plain" * 1000), "/logs/y.log.gz": b"not gzipped"})
    with files.open_input(f"{ROOT}/x.log.gz") as file:
        assert read_at(file, 4995, 100) == b"plain"
    assert files.read_small(f"{ROOT}/y.log.gz") == b"not gzipped"


def test_sequential_reading_takes_few_requests_of_bounded_size(store: CountedFileSystem) -> None:
    data = os.urandom(1 << 20) * 40
    store.pipe({"/logs/big.log": data})
    with files.open_input(f"{ROOT}/big.log") as file:
        buffer, parts = bytearray(1 << 20), []
        while got := file.readinto(buffer):  # type: ignore[attr-defined]
            parts.append(bytes(buffer[:got]))
    assert b"".join(parts) == data
    assert len(store.requests) <= 12
    assert max(size for _, size in store.requests) <= LARGEST_READ_BYTES


def test_a_jump_reads_little(store: CountedFileSystem) -> None:
    store.pipe({"/logs/big.log": bytes(30 << 20)})
    with files.open_input(f"{ROOT}/big.log") as file:
        for position in (20 << 20, 1 << 20, 25 << 20):
            read_at(file, position, 100)
            read_at(file, position + 100, 100)
    assert [size for _, size in store.requests] == [FIRST_READ_BYTES] * 3


@given(
    data=st.binary(max_size=300),
    reads=st.lists(st.tuples(st.integers(0, 320), st.integers(-1, 320)), max_size=8),
)
def test_a_remote_file_reads_as_a_local_one(data: bytes, reads: list[tuple[int, int]]) -> None:
    with counted_store() as store:
        store.pipe({"/logs/any": data})
        file = RemoteFile(f"{ROOT}/any")
    with file:
        for position, size in reads:
            file.seek(position)
            assert file.read(size) == (data[position:] if size < 0 else data[position : position + size])
            assert file.tell() == max(position, min(len(data), position + size if size >= 0 else len(data)))
        assert file.seek(0, os.SEEK_END) == len(data)


def test_what_is_not_there_is_a_storage_error(store: CountedFileSystem, tmp_path: Path) -> None:
    for name in (f"{ROOT}/none.log", str(tmp_path / "none.log")):
        with pytest.raises(StorageError) as caught:
            files.open_input(name)
        assert caught.value.file == name
        with pytest.raises(StorageError):
            files.read_small(name)
    with pytest.raises(StorageError):
        files.list_directory(f"{ROOT}/none")


def test_a_failing_read_is_a_storage_error(store: CountedFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    store.pipe({"/logs/x.log": b"12345"})
    file = files.open_input(f"{ROOT}/x.log")

    def fail(self: CountedFile, size: int = -1) -> bytes:
        raise ConnectionResetError(104, "reset by peer")

    monkeypatch.setattr(CountedFile, "read", fail)
    with pytest.raises(StorageError, match="cannot be read"), file:
        file.read(5)


def test_an_unknown_scheme_says_what_to_install() -> None:
    with pytest.raises(StorageError) as caught:
        files.open_input("nosuchstore://bucket/x.log")
    assert caught.value.cure is not None


def test_without_fsspec_an_unknown_scheme_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(StorageError, match="no file system for otherstore") as caught:
        files.list_directory("otherstore://bucket/logs")
    assert "install fsspec" in (caught.value.cure or "")


def test_a_large_file_is_no_small_one(store: CountedFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_SMALL_BYTES", 3)
    store.pipe({"/logs/x": b"1234"})
    with pytest.raises(StorageError, match="larger than"):
        files.read_small(f"{ROOT}/x")
