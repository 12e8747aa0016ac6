"""The store in one file: what is stored, what is not, and who may open it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.metadata.embedded import FILE_NAME, EmbeddedStore
from klog.metadata.errors import StoreError, StoreFailedError, StoreLockedError
from klog.metadata.store import Check, Create, Delete, Operation, SetData
from klog.metadata.tree import NodeTree
from tests.processes import child


def test_nodes_survive_a_restart_with_their_versions(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    first = EmbeddedStore(file)
    first.create("/a/b", b"0", make_parents=True)
    first.set("/a/b", b"1")
    before = first.get("/a/b")
    first.close()
    second = EmbeddedStore(file)
    assert second.get("/a/b") == before
    assert second.children("/a") == ["b"]
    assert second.set("/a/b", b"2").modified_zxid > before.stat.modified_zxid
    second.close()


def test_a_restart_ends_the_session_of_the_process_before(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    script = (
        "import os, sys; from pathlib import Path; from klog.metadata.embedded import EmbeddedStore\n"
        "store = EmbeddedStore(Path(sys.argv[1]))\n"
        "store.create('/kept', b'acknowledged')\n"
        "store.create('/gone', b'', ephemeral=True)\n"
        "print(store.session_id, flush=True)\n"
        f"os.kill(os.getpid(), {int(signal.SIGKILL)})\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(file)], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    store = EmbeddedStore(file)
    assert store.get("/kept").data == b"acknowledged"
    assert store.exists("/gone") is None
    assert store.session_id > int(done.stdout)
    store.close()


@pytest.mark.parametrize("delay_ms", [1, 3, 7, 20, 50])
def test_acknowledged_writes_survive_a_kill_at_any_moment(tmp_path: Path, delay_ms: int) -> None:
    script = (
        "import sys; from pathlib import Path; from klog.metadata.embedded import EmbeddedStore\n"
        "from klog.metadata.store import SetData\n"
        "store = EmbeddedStore(Path(sys.argv[1]))\n"
        "store.create('/a', b'0'); store.create('/b', b'0')\n"
        "for number in range(1, 1_000_000):\n"
        "    data = b'%d' % number\n"
        "    store.multi([SetData('/a', data), SetData('/b', data)])\n"
        "    print(number, flush=True)\n"
    )
    file = tmp_path / FILE_NAME
    command = [sys.executable, "-c", script, str(file)]
    with child(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(delay_ms / 1000)
        writer.kill()
        acknowledged = int(([first, *writer.stdout.read().splitlines()])[-1])
    store = EmbeddedStore(file)
    a, b = store.get("/a").data, store.get("/b").data
    store.close()
    assert a == b
    assert acknowledged <= int(a or b"0") <= acknowledged + 1


def test_sequence_numbers_continue_after_a_restart(tmp_path: Path) -> None:
    names = []
    for _ in range(2):
        store = EmbeddedStore(tmp_path / FILE_NAME)
        names.append(store.create("/n_", b"", sequential=True))
        store.delete(names[-1])
        store.close()
    assert names[0] < names[1]


def test_only_one_process_at_a_time_opens_the_file(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    store = EmbeddedStore(file)
    store.create("/a", b"")
    with pytest.raises(StoreLockedError, match="in use"):
        EmbeddedStore(file)
    script = (
        "import sys; from pathlib import Path; from klog.metadata.embedded import EmbeddedStore\n"
        "from klog.metadata.errors import StoreLockedError\n"
        "try:\n    EmbeddedStore(Path(sys.argv[1]))\nexcept StoreLockedError:\n    sys.exit(42)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(file)], check=False).returncode == 42
    assert store.set("/a", b"still ours").version == 1
    store.close()
    EmbeddedStore(file).close()


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    file.write_bytes(b"not a database" * 100)
    with pytest.raises(StoreFailedError, match="not a database"):
        EmbeddedStore(file)


def test_a_file_of_another_schema_is_refused(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    database = sqlite3.connect(file)
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreFailedError, match="another klog"):
        EmbeddedStore(file)


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreFailedError, match="unable to open"):
        EmbeddedStore(tmp_path / "missing" / FILE_NAME)


def test_a_write_that_cannot_be_stored_does_not_happen(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "klog")
    store = EmbeddedStore(tmp_path / FILE_NAME)
    store.create("/a", b"small")
    # PRAGMA max_page_count has the effect of a full disk.
    pages = store._journal._database.execute("PRAGMA page_count").fetchone()[0]
    store._journal._database.execute(f"PRAGMA max_page_count = {pages}")
    seen: list[object] = []
    store.exists("/b", seen.append)
    with pytest.raises(StoreFailedError, match="full"):
        store.multi([SetData("/a", b"x" * 100_000), Create("/b")])
    with pytest.raises(StoreFailedError, match="full"):
        store.set("/a", b"x" * 100_000)
    assert store.get("/a").data == b"small"
    assert store.exists("/b") is None
    store._journal._database.execute("PRAGMA max_page_count = 1000000")
    store.set("/a", b"y" * 100_000)
    # The failure is logged once, and so is its end.
    failed, repaired = (record.getMessage() for record in caplog.records)
    assert failed.startswith(
        f"the metadata cannot be changed: {tmp_path / FILE_NAME}: database or disk is full"
    )
    assert repaired == "the metadata can be changed again"
    store.close()
    assert seen == []
    again = EmbeddedStore(tmp_path / FILE_NAME)
    assert again.get("/a").data == b"y" * 100_000
    again.close()


_paths = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/deep"])
_versions = st.integers(-1, 3)
_operations = st.one_of(
    st.builds(Check, _paths, _versions),
    st.builds(Create, _paths, st.none() | st.binary(max_size=3), st.booleans(), st.booleans()),
    st.builds(SetData, _paths, st.binary(max_size=3), _versions),
    st.builds(Delete, _paths, _versions),
)


@given(st.lists(st.lists(_operations, max_size=4), max_size=20))
def test_the_file_holds_the_same_nodes_as_the_tree(multis: list[list[Operation]]) -> None:
    store = EmbeddedStore(Path(":memory:"))
    for operations in multis:
        with suppress(StoreError):
            store.multi(operations)
    kept, true = store._journal.load(), store._shared.tree
    assert _content(kept) == _content(true)
    store.close()


def _content(tree: NodeTree) -> object:
    return tree._records, {path: sorted(names) for path, names in tree._children.items()}, tree.last_zxid


def test_the_store_closes_although_the_disk_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / FILE_NAME
    store = EmbeddedStore(file)
    store.create("/gone", b"", ephemeral=True)
    store._journal._database.execute("PRAGMA query_only = ON")
    store.close()
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    again = EmbeddedStore(file)
    assert again.exists("/gone") is None
    again.close()


def changed_by_hand(file: Path, *statements: str) -> None:
    database = sqlite3.connect(file)
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()


@pytest.fixture
def three_nodes(tmp_path: Path) -> Path:
    store = EmbeddedStore(tmp_path / FILE_NAME)
    store.create("/a/b/c", b"0", make_parents=True)
    store.close()
    return tmp_path / FILE_NAME


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE node SET data = 'text' WHERE path = '/a/b/c'",
        "UPDATE node SET data = 1.5 WHERE path = '/a/b/c'",
        "UPDATE node SET version = 'x' WHERE path = '/a/b/c'",
        "UPDATE node SET version = -1 WHERE path = '/a/b/c'",
        "UPDATE node SET version = 2147483648 WHERE path = '/a/b/c'",
        "UPDATE node SET modified_zxid = 9223372036854775807 WHERE path = '/a/b/c'",
        "UPDATE node SET child_changes = 2147483647 WHERE path = '/a/b/c'",
        "UPDATE node SET path = 'a/b/c' WHERE path = '/a/b/c'",
        "UPDATE node SET path = '/a/b/' WHERE path = '/a/b/c'",
        "UPDATE node SET path = '' WHERE path = '/a/b/c'",
        "UPDATE node SET path = x'2fff' WHERE path = '/a/b/c'",
        "UPDATE node SET path = CAST(x'2fff' AS TEXT) WHERE path = '/a/b/c'",
    ],
)
def test_a_row_that_is_no_node_is_left_out_and_named(
    three_nodes: Path, caplog: pytest.LogCaptureFixture, statement: str
) -> None:
    changed_by_hand(three_nodes, statement)
    store = EmbeddedStore(three_nodes)
    assert store.children("/a") == ["b"]
    assert store.exists("/a/b/c") is None
    store.create("/d", b"1")
    store.close()
    assert str(three_nodes) in caplog.messages[0]
    again = EmbeddedStore(three_nodes)
    assert again.get("/d").data == b"1"
    again.close()


def test_a_missing_parent_is_replaced_by_an_empty_node(
    three_nodes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changed_by_hand(three_nodes, "DELETE FROM node WHERE path IN ('/a', '/a/b')")
    store = EmbeddedStore(three_nodes)
    assert store.get("/a/b/c").data == b"0"
    assert (store.get("/a").data, store.children("/a")) == (None, ["b"])
    store.set("/a", b"new")
    store.close()
    assert ["'/a'" in line for line in caplog.messages] == [True, False]
    again = EmbeddedStore(three_nodes)
    assert again.get("/a").data == b"new"
    again.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM tree",
        "UPDATE tree SET last_zxid = 0",
        "UPDATE tree SET last_zxid = 'x'",
        "UPDATE tree SET last_zxid = 9223372036854775807",
    ],
)
def test_changes_get_higher_numbers_than_all_before_also_after_damage(
    three_nodes: Path, caplog: pytest.LogCaptureFixture, statement: str
) -> None:
    store = EmbeddedStore(three_nodes)
    before = store.get("/a/b/c").stat.modified_zxid
    store.close()
    changed_by_hand(three_nodes, statement)
    store = EmbeddedStore(three_nodes)
    assert store.set("/a/b/c", b"1").modified_zxid > before
    store.close()
    again = EmbeddedStore(three_nodes)
    assert again.get("/a/b/c").data == b"1"
    again.close()


@given(st.integers(0, 2**16), st.integers(1, 255))
def test_a_file_with_a_changed_byte_is_opened_or_refused_with_its_name(at: int, bits: int) -> None:
    with tempfile.TemporaryDirectory() as work:
        file = Path(work) / FILE_NAME
        store = EmbeddedStore(file)
        for name in ("/a", "/b", "/c"):
            store.create(name, b"0" * 100)
        store.close()
        data = bytearray(file.read_bytes())
        data[at % len(data)] ^= bits
        file.write_bytes(data)
        try:
            EmbeddedStore(file).close()
        except StoreError as error:
            refused = str(error)
        else:
            refused = str(file)
        assert str(file) in refused


def test_every_write_is_on_the_disk_before_it_is_answered(tmp_path: Path) -> None:
    """With FULL, the write-ahead log is fsynced after each commit, so a loss of power loses nothing."""
    store = EmbeddedStore(tmp_path / FILE_NAME)
    database = store._journal._database
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert database.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
    store.close()


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace shows the system calls")
def test_the_system_calls_of_a_write_end_with_one_fsync_of_the_log(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from klog.metadata.embedded import EmbeddedStore\n"
        "from klog.metadata.store import Create\n"
        "store = EmbeddedStore(Path(sys.argv[1]))\n"
        "for number in range(3):\n"
        "    os.write(2, b'')\n"
        "    store.create(f'/{number}', b'x')\n"
        "os.write(2, b'')\n"
        "store.multi_many([[Create(f'/many{number}', b'x')] for number in range(50)])\n"
        "os.write(2, b'')\n"
        "os._exit(0)\n"
    )
    trace = tmp_path / "trace"
    calls = "trace=write,pwrite64,fsync,fdatasync"
    command = ["strace", "-f", "-y", "-e", calls, "-o", str(trace), sys.executable, "-c", script]
    done = subprocess.run([*command, str(tmp_path / FILE_NAME)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"strace cannot be used: {done.stderr[:200]!r}")
    marks = re.split(r"write\(2<[^\n]*", trace.read_text())
    assert len(marks) == 6
    for between in marks[1:5]:
        used = re.findall(r"(pwrite64|fsync|fdatasync)\(\d+<([^>]*)>", between)
        to_log = [name for name, path in used if path.endswith("-wal")]
        assert "pwrite64" in to_log
        assert [name for name in to_log if name != "pwrite64"] == ["fdatasync"]
        assert to_log[-1] == "fdatasync"


@pytest.fixture(scope="module")
def killed_after_20_changes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a store whose process was killed after it had created /0 to /19 one after the other."""
    work = tmp_path_factory.mktemp("killed")
    store = EmbeddedStore(work / FILE_NAME)
    for number in range(20):
        store.create(f"/{number}", b"x" * 500)
    copies = work / "copies"
    copies.mkdir()
    for file in work.glob(f"{FILE_NAME}*"):
        shutil.copy(file, copies)
    store.close()
    return copies


@given(st.integers(0, 2**20), st.integers(0, 255))
def test_a_log_that_was_cut_or_damaged_gives_the_changes_before_that(
    killed_after_20_changes: Path, at: int, bits: int
) -> None:
    with tempfile.TemporaryDirectory() as work:
        for file in killed_after_20_changes.iterdir():
            shutil.copy(file, work)
        wal = Path(work) / f"{FILE_NAME}-wal"
        data = bytearray(wal.read_bytes())
        at %= len(data)
        if bits:
            data[at] ^= bits
            wal.write_bytes(data)
        else:
            os.truncate(wal, at)
        store = EmbeddedStore(Path(work) / FILE_NAME)
        names = sorted(int(name) for name in store.children("/"))
        assert names == list(range(len(names))), "no change without those before it"
        assert all(store.get(f"/{name}").data == b"x" * 500 for name in names)
        store.close()
