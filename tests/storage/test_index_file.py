"""Index files as brokers allocate them: entries are read, zeros are not, whatever the size of the file is."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from klog.formats.errors import StorageError
from klog.formats.names import FileKind
from klog.storage.files import files
from klog.storage.indexes.index_file import IndexFile, read_index
from klog.storage.indexes.index_search import OffsetIndexSearch, TimeIndexSearch
from tests.corpora import Corpus

GIB = 1 << 30
ENTRIES = struct.pack(">iiiiii", 5, 100, 9, 4200, 30, 8300)


class CountedReads(io.BytesIO):
    """Counts the bytes that are read."""

    read_bytes = 0

    def read(self, size: int | None = -1, /) -> bytes:
        part = super().read(size)
        self.read_bytes += len(part)
        return part


def sparse(path: Path, head: bytes, size_bytes: int, tail: bytes = b"") -> Path:
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size_bytes)
        if tail:
            file.seek(size_bytes - len(tail))
            file.write(tail)
    return path


@pytest.mark.parametrize("size_bytes", [24, 32, 10 << 20, 3 * GIB])
def test_the_zeros_at_the_end_are_left_out(tmp_path: Path, size_bytes: int) -> None:
    path = sparse(tmp_path / "0.index", ENTRIES, size_bytes)
    assert read_index(str(path), FileKind.OFFSET_INDEX) == IndexFile(ENTRIES, size_bytes)
    with path.open("rb") as file:
        search = OffsetIndexSearch(file)
        assert [search[row].relative_offset for row in range(len(search))] == [5, 9, 30]


def test_an_entry_of_zeros_before_others_stays(tmp_path: Path) -> None:
    path = tmp_path / "0.index"
    path.write_bytes(bytes(8) + ENTRIES + bytes(16))
    assert read_index(str(path), FileKind.OFFSET_INDEX) == IndexFile(bytes(8) + ENTRIES, 48)


def test_an_incomplete_entry_at_the_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "0.index"
    path.write_bytes(ENTRIES + b"\0\0\1")
    assert read_index(str(path), FileKind.OFFSET_INDEX) == IndexFile(ENTRIES + b"\0\0\1", 27)


def test_entries_after_a_long_gap_are_one_entry_out_of_order(tmp_path: Path) -> None:
    path = sparse(tmp_path / "0.index", ENTRIES, 3 * GIB, b"\1")
    found = read_index(str(path), FileKind.OFFSET_INDEX)
    assert (len(found.entries) % 8, found.size_bytes, found.complete) == (0, 3 * GIB, False)
    assert found.entries.rstrip(b"\0") == ENTRIES.rstrip(b"\0")
    assert len(found.entries) < 1 << 20


def test_a_large_file_that_is_not_an_index_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "0.timeindex"
    path.write_bytes(b"\x11" * (8 << 20))
    assert len(read_index(str(path), FileKind.TIME_INDEX, sorted_only=True).entries) < 2 << 20
    assert len(read_index(str(path), FileKind.TIME_INDEX).entries) == 8 << 20
    file = CountedReads(path.read_bytes())
    assert TimeIndexSearch(file).before(1) is None
    assert file.read_bytes < 2 << 10


def test_a_gzipped_copy_is_read_in_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "0.index.gz"
    path.write_bytes(gzip.compress(ENTRIES + bytes(10 << 20)))
    assert read_index(str(path), FileKind.OFFSET_INDEX) == IndexFile(ENTRIES, 24 + (10 << 20))


def test_a_small_file_that_is_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sparse(tmp_path / "meta.properties", b"version=1\n", GIB)
    with pytest.raises(StorageError, match="larger than 64 MiB"):
        files.read_small(path)
    monkeypatch.setattr(files, "MAX_SMALL_BYTES", 10)
    path.write_bytes(b"version=1\n")
    assert files.read_small(path) == b"version=1\n"
    copy = tmp_path / "meta.properties.gz"
    copy.write_bytes(gzip.compress(b"version=1\n\n"))
    with pytest.raises(StorageError, match="larger than"):
        files.read_small(copy)


@pytest.mark.parametrize(
    "arguments",
    [
        ("dump-segment", "--all-files", "--verify"),
        ("dump-segment", "--all-files", "--format", "table"),
        ("dump-segment", "--files", "{}/00000000000000000000.index,{}/00000000000000000000.timeindex"),
        ("dump-segment", "--offsets", "3..5"),
        ("verify",),
        ("rebuild-index", "--check"),
    ],
)
def test_indexes_of_gigabytes_cost_neither_memory_nor_time(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    source = Corpus("corrupt-k39").log_dir().partition("c-b.intact-0").path
    directory = tmp_path / "c-b-0"
    shutil.copytree(source, directory)
    for suffix in (".index", ".timeindex"):
        path = directory / f"{'0' * 20}{suffix}"
        head = path.read_bytes()
        sparse(path, head, 3 * GIB, b"\1" if suffix == ".index" else b"")
    (directory / "leader-epoch-checkpoint").unlink(missing_ok=True)
    sparse(directory / "leader-epoch-checkpoint", b"0\n", GIB)
    command = [text.replace("{}", str(directory)) for text in arguments]
    command += [] if "--files" in command else [str(directory)]
    code = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30));"
    code += "from klog.commands.main import main; main()"
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-c", code, *command], capture_output=True, check=False, text=True, timeout=120
    )
    after = os.times()
    # Processor time does not depend on other load of the machine.
    assert after.children_user + after.children_system - before.children_user - before.children_system < 10
    assert "Traceback" not in done.stderr
    assert "MemoryError" not in done.stderr
    assert done.returncode in (0, 1)


@pytest.mark.parametrize("name", ["meta.properties", "partition.metadata", "leader-epoch-checkpoint"])
def test_an_error_never_repeats_a_whole_line(tmp_path: Path, name: str) -> None:
    long = "x" * 100_000
    (tmp_path / name).write_text(
        f"version=1\nnode.id=1\ncluster.id=c\ndirectory.id={long}\ntopic_id: {long}\n"
    )
    code = "from klog.commands.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "dump-segment", str(tmp_path / name)],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 1
    assert len(done.stderr) < 1000
