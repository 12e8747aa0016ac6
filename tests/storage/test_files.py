"""Opening and replacing files: every failure is a StorageError with a cure, and a replacement is complete
or nothing.
"""

from __future__ import annotations

import errno
import gzip
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats.errors import StorageError
from klog.storage.files import files
from klog.storage.files.files import atomic_output, open_for_reading, read_whole, write_atomically


def test_permission_denied_has_a_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # The tests may run as root, to whom nothing is denied, so the opener refuses.
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(files, "_PlainFile", refuse)
    with pytest.raises(StorageError) as caught:
        open_for_reading(tmp_path / "some.log")
    assert str(caught.value) == (
        f"{tmp_path / 'some.log'}: cannot be opened: Permission denied "
        "(run as the user that owns Kafka's files, or ask for read permission)"
    )


@pytest.mark.parametrize("special", ["directory", "pipe", "nothing"])
def test_only_regular_files_are_opened(tmp_path: Path, special: str) -> None:
    path = tmp_path / "x.log"
    if special == "directory":
        path.mkdir()
    elif special == "pipe":
        os.mkfifo(path)  # without a writer, waiting for one would never end
    with pytest.raises(StorageError) as caught:
        open_for_reading(path)
    assert caught.value.cure is not None


def test_a_directory_that_cannot_be_listed_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be listed"):
        files.list_directory(tmp_path / "none")


def test_a_read_that_fails_names_file_and_position(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"12345678")
    with open_for_reading(path) as file:
        file.seek(4)
        os.close(file.fileno())
        reopened = os.open(
            tmp_path, os.O_RDONLY
        )  # a directory with the same descriptor: reads fail with EISDIR
        with pytest.raises(StorageError) as caught:
            file.readinto(bytearray(4))  # type: ignore[attr-defined]
        assert caught.value.file == str(path)
        assert reopened == file.fileno()


@given(st.lists(st.binary(max_size=3000), min_size=1, max_size=4), st.integers(0, 4000), st.integers(0, 4000))
def test_a_gzipped_copy_reads_and_seeks_like_the_plain_file(
    tmp_path_factory: pytest.TempPathFactory, members: list[bytes], first: int, second: int
) -> None:
    path = tmp_path_factory.mktemp("gz") / "x.log.gz"
    path.write_bytes(b"".join(gzip.compress(member) for member in members))
    plain = b"".join(members)
    assert read_whole(path) == plain
    with open_for_reading(path) as file:
        for position in (first, second):
            assert file.seek(position) == min(position, len(plain))
            assert file.read(100) == plain[position : position + 100]


@pytest.mark.parametrize("cut", [1, 9, 100, 5000])
def test_a_truncated_gzipped_copy_is_read_up_to_its_end_and_reported(tmp_path: Path, cut: int) -> None:
    plain = os.urandom(20_000)
    path = tmp_path / "x.log.gz"
    path.write_bytes(gzip.compress(plain)[:-cut])
    delivered = bytearray()
    buffer = bytearray(777)
    ended: StorageError | None = None
    with open_for_reading(path) as file:
        while ended is None:
            try:
                delivered += buffer[: file.readinto(buffer)]  # type: ignore[attr-defined]
            except StorageError as error:
                ended = error
    assert "ends early" in str(ended)
    assert plain.startswith(delivered)
    assert len(delivered) >= min(len(plain), len(plain) - cut)


@pytest.mark.parametrize("position", [0.3, 0.5, 0.9])
def test_a_damaged_gzipped_copy_is_read_up_to_the_damage(tmp_path: Path, position: float) -> None:
    plain = b"".join(b"line %d\n" % number for number in range(20_000))
    packed = bytearray(gzip.compress(plain))
    at = int(len(packed) * position)
    packed[at : at + 8] = b"\xff" * 8
    path = tmp_path / "x.log.gz"
    path.write_bytes(packed)
    readable_bytes = int(len(plain) * (position - 0.1))
    with open_for_reading(path) as file:
        assert file.read(readable_bytes) == plain[:readable_bytes]
        with pytest.raises(StorageError, match="damaged"):
            file.read()


def test_going_back_a_little_in_a_gzipped_copy_decompresses_nothing_again(tmp_path: Path) -> None:
    plain = os.urandom(3 << 20)
    path = tmp_path / "x.log.gz"
    path.write_bytes(gzip.compress(plain, 1))
    with open_for_reading(path) as file:
        file.seek(2 << 20)
        file._restart = None  # type: ignore[attr-defined]
        for back in (1, 1000, 1 << 20):
            file.seek((2 << 20) - back)
            assert file.read(5000) == plain[(2 << 20) - back :][:5000]


def test_a_damaged_gzipped_copy_is_reported(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(os.urandom(20_000)))
    packed[-5] ^= 0xFF
    path = tmp_path / "x.log.gz"
    path.write_bytes(packed)
    with pytest.raises(StorageError, match="damaged"):
        read_whole(path)


def test_a_file_named_gz_with_plain_bytes_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.log.gz"
    path.write_bytes(b"plain")
    assert read_whole(path) == b"plain"


def test_replacing_keeps_mode_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    path.write_bytes(b"old")
    path.chmod(0o640)
    write_atomically(path, [b"ne", b"w"])
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["x.index"]


def test_a_writer_that_fails_leaves_the_old_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    path.write_bytes(b"old")

    def fail_half_way() -> None:
        with atomic_output(path) as out:
            out.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x.index"]


def test_a_file_is_visible_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    with atomic_output(path) as out:
        out.write(b"whole")
        assert not path.exists()
    assert path.read_bytes() == b"whole"


def test_a_missing_directory_cannot_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        write_atomically(tmp_path / "none" / "x", b"")


def test_what_a_process_of_the_same_id_has_left_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "recovery-point-offset-checkpoint"
    left = tmp_path / f"{target.name}.{os.getpid()}.tmp"
    left.write_bytes(b"half a checkpoint, longer than the whole one")
    left.chmod(0o666)
    write_atomically(target, b"whole")
    assert target.read_bytes() == b"whole"
    assert not left.exists()
