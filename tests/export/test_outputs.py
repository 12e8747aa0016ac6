"""A file of an output appears complete or not at all; wherever the output is, and however writing ends."""

from __future__ import annotations

import errno
import os

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
import xxhash

from klog.export import outputs as output_files
from klog.export import remote_output
from klog.export.open_output import open_output
from klog.export.outputs import read_whole, write_whole
from klog.formats.errors import StorageError, UsageError
from tests import corpora
from tests.export.export_support import export, tree
from tests.export.object_store import ROOT, counted_store, put_directory

LOG = corpora.corpora("k39-codecs")[0].log_dir().partition("t-gzip-0").path


@pytest.fixture(params=["local", "object store", "other"])
def output(request, tmp_path, monkeypatch):
    """An output of each kind; the remote ones on a local directory behind pyarrow's interface."""
    if request.param == "local":
        return open_output(str(tmp_path / "out"))
    system = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    (tmp_path / "bucket").mkdir()
    monkeypatch.setattr(remote_output, "resolve", lambda uri: (system, uri.removeprefix("s3://")))
    monkeypatch.setattr(
        remote_output, "open_input", lambda uri: (tmp_path / uri.removeprefix("s3://")).open("rb")
    )
    if request.param == "object store":
        system = pafs.PyFileSystem(_WithoutDirectories(system))
        monkeypatch.setattr(remote_output, "_ATOMIC_UPLOAD", {system.type_name})
    return open_output("s3://bucket/out")


class _WithoutDirectories(pafs.FSSpecHandler):
    """A file system in which nobody has to make a directory."""

    def __init__(self, system: pafs.FileSystem) -> None:
        self._system = system

    def get_type_name(self) -> str:
        return "store"

    def get_file_info(self, paths: list[str]) -> list[pafs.FileInfo]:
        return self._system.get_file_info(paths)

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        return self._system.get_file_info(selector)

    def delete_dir(self, path: str) -> None:
        self._system.delete_dir(path)

    def delete_file(self, path: str) -> None:
        self._system.delete_file(path)

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:
        self._system.create_dir(path.rpartition("/")[0], recursive=True)
        return self._system.open_output_stream(path)


def test_a_file_appears_when_it_is_committed(output) -> None:
    pending = output.create()
    pending.sink.write(b"half")
    assert set(output.names()) <= {name for name in output.names() if name.startswith("_klog/unfinished/")}
    pending.sink.write(b" and half")
    pending.commit("a/b/c.bin")
    pending.discard()
    assert output.names() == {"a/b/c.bin": 13}
    assert read_whole(output, "a/b/c.bin") == b"half and half"
    assert pending.sink.size_bytes == 13
    assert pending.sink.checksum == xxhash.xxh3_128(b"half and half").hexdigest()


def test_a_file_that_is_discarded_leaves_nothing(output) -> None:
    pending = output.create()
    pending.sink.write(b"half")
    pending.discard()
    pending.sink.write(b"the footer that a writer insists on")
    assert output.names() == {}


def test_a_file_replaces_an_older_one(output) -> None:
    write_whole(output, "a/b/c.bin", b"old")
    write_whole(output, "a/b/c.bin", b"new!")
    assert read_whole(output, "a/b/c.bin") == b"new!"


def test_files_are_listed_below_a_directory_by_their_whole_names(output) -> None:
    write_whole(output, "a/b/c.bin", b"1")
    write_whole(output, "a/b/d.bin", b"22")
    assert output.names("a/b") == {"a/b/c.bin": 1, "a/b/d.bin": 2}
    assert output.names("nowhere") == {}


def test_removing_a_file_that_is_not_there_is_no_error(output) -> None:
    write_whole(output, "a/b/c.bin", b"1")
    output.remove("a/b/c.bin")
    output.remove("a/b/c.bin")
    assert output.names() == {}


def test_a_directory_is_removed_with_all_that_is_in_it(output, tmp_path) -> None:
    place = tmp_path / ("out" if output.root.startswith("/") else "bucket/out") / "_klog/unfinished"
    place.mkdir(parents=True)
    (place / "0123.tmp").write_bytes(b"half")
    output.remove_directory("_klog/unfinished")
    output.remove_directory("_klog/unfinished")
    assert output.names() == {}


def test_a_whole_export_into_an_object_store_is_the_same_as_a_local_one(output, tmp_path) -> None:
    export(LOG, tmp_path / "local")
    export(LOG, output.root, verify=True)
    place = tmp_path / ("out" if output.root.startswith("/") else "bucket/out")
    assert tree(place) == tree(tmp_path / "local")


def test_an_output_is_locked_for_one_job_and_free_after_it(tmp_path) -> None:
    output = open_output(str(tmp_path / "out"))
    with output.locked():
        with pytest.raises(UsageError, match="another export is writing here"), output.locked():
            pass
        write_whole(output, "x", b"")
    with output.locked():
        assert set(output.names()) == {"x", "_klog/lock"}
    assert output.names() == {"x": 0}


def test_a_lock_whose_file_was_removed_is_not_taken_for_held(tmp_path) -> None:
    """Who opened the lock's file just before its holder removed it holds nothing."""
    output = open_output(str(tmp_path / "out"))
    with output.locked():
        (tmp_path / "out/_klog/lock").unlink()
        with output.locked():
            pass


def test_a_directory_that_cannot_be_made_is_an_error_that_names_it(tmp_path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="file/out: cannot be written"):
        write_whole(open_output(str(tmp_path / "file" / "out")), "x", b"")


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_fails_at_the_end_leaves_nothing(call, tmp_path, monkeypatch) -> None:
    output = open_output(str(tmp_path / "out"))
    pending = output.create()
    pending.sink.write(b"data")

    def fail(*_args, **_options):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(StorageError, match="Input/output error"):
        pending.commit("x")
    pending.discard()
    assert output.names() == {}


def test_a_store_that_fails_is_an_error_that_names_the_file(tmp_path, monkeypatch) -> None:
    def refuse(*_args):
        raise pa.ArrowIOError("access denied")

    system = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    monkeypatch.setattr(remote_output, "resolve", lambda uri: (system, "bucket"))
    monkeypatch.setattr(remote_output._SpooledFile, "_upload", refuse)
    with pytest.raises(StorageError, match="s3://bucket/x: cannot be written: access denied"):
        write_whole(open_output("s3://bucket"), "x", b"")


def test_a_failed_background_sync_is_raised_at_the_commit(tmp_path, monkeypatch) -> None:
    """The kernel tells of a failed write once, to whoever asks first: here to the thread that syncs early."""
    monkeypatch.setattr(output_files, "_STEP_BYTES", 10)
    real, calls = os.fsync, []

    def fail_first(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    output = open_output(str(tmp_path / "out"))
    pending = output.create()
    monkeypatch.setattr(os, "fsync", fail_first)
    pending.sink.write(b"eleven bytes")
    with pytest.raises(StorageError, match="Input/output error"):
        pending.commit("x")
    pending.discard()
    assert len(calls) == 1
    assert output.names() == {}


def test_a_file_that_is_synced_early_holds_what_was_written(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(output_files, "_STEP_BYTES", 1000)
    output = open_output(str(tmp_path / "out"))
    pending = output.create()
    pieces = [bytes([number]) * 700 for number in range(100)]
    for piece in pieces:
        pending.sink.write(piece)
    pending.commit("x")
    assert read_whole(output, "x") == b"".join(pieces)


def test_an_export_from_and_to_a_store_behind_fsspec_is_the_same_as_a_local_one(tmp_path) -> None:
    export(LOG, tmp_path / "local")
    with counted_store() as store:
        put_directory(store, LOG, f"/logs/{LOG.name}")
        report = export([ROOT], "counted://lake/out", verify=True)
        assert report.clean
        stored = {name: store.cat_file(name) for name in store.find("/lake/out") if "_klog" not in name}
        assert export([ROOT], "counted://lake/out", resume=True).exported_bytes == 0
    local = {name: data for name, data in tree(tmp_path / "local").items() if "_klog" not in name}
    assert {name.removeprefix("/lake/out/"): data for name, data in stored.items()} == local


@pytest.mark.parametrize("place", ["s3://", "s3:", "s3:/bucket", "S3:bucket", "gs:///x", "s3://?region=eu"])
def test_a_mistyped_uri_is_no_local_directory(place: str) -> None:
    with pytest.raises(
        StorageError, match=r"names no place in an object store \(write (s3|gs)://BUCKET/PATH"
    ):
        open_output(place)


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_directory_that_another_process_removes_meanwhile_is_made_again(
    tmp_path, monkeypatch, is_batch: bool
) -> None:
    """`remove` takes the directory of its file away if it is empty."""
    output = open_output(str(tmp_path / "out"))
    removed = []

    def removing(source: str, target: str) -> None:
        if not removed:
            removed.append(target)
            output.remove("day/other")
        replaced(source, target)

    replaced = os.replace
    pending = output.create()
    pending.sink.write(b"x")
    monkeypatch.setattr(os, "replace", removing)
    (tmp_path / "out" / "day").mkdir()
    (tmp_path / "out" / "day" / "other").touch()
    if is_batch:
        pending.close()
        output.commit_all([(pending, "day/file")])
    else:
        pending.commit("day/file")

    assert removed
    assert (tmp_path / "out" / "day" / "file").read_bytes() == b"x"
    assert not (tmp_path / "out" / "day" / "other").exists()


def test_a_signal_while_a_file_is_opened_leaves_no_file(tmp_path, monkeypatch) -> None:
    def interrupted(file) -> None:
        file.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(output_files, "BackgroundSyncedFile", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_output(str(tmp_path / "out")).create()
    assert tree(tmp_path / "out") == {}
