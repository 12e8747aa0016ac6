"""Wrong checksum code (a broken processor, library or build) makes nothing damaged: klog says so and stops.

Before a checksum that differs decides anything, crcmod computes it again.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from klog.formats import checksums, message_set, producer_snapshot, record_batch
from klog.formats.errors import ChecksumCodeError, StorageError
from klog.kernel import _pydecode, _pykernel, kernel
from klog.kernel.columns import BatchTable, RecordTable
from klog.kernel.twins import compiled_or_twin
from klog.storage.cleaner.worker import clean_in_worker
from klog.storage.log import validation
from klog.storage.reading import producer_state
from klog.storage.reading.producer_state import pack_snapshot, unpack_snapshot
from tests.corpora import Corpus
from tests.storage.cleaner.test_log_cleaner import Broker, make
from tests.storage.log import building
from tests.storage.log.building import append

PACKAGE = Path(checksums.__file__).parent.parent
BREAKING = """
import klog.formats.checksums as checksums
def broken(right):
    return lambda data: right(data) ^ ({0} <= len(data) < {1})
checksums.crc32 = broken(checksums.crc32)
checksums.crc32c = broken(checksums.crc32c)
"""
RUN = """
from klog.commands.main import main
main()
"""
NOTHING = 0, 0
EVERYTHING = 0, 1 << 40
BELOW_THE_BLOCK = 0, 1 << 14
"""Shorter data than the block that a broker checks at its start: that finds nothing."""


def klog(*arguments: object, wrong_for: tuple[int, int] = EVERYTHING) -> subprocess.CompletedProcess[str]:
    """Runs a command in whose process the fast checksums of data of these sizes are wrong."""
    return subprocess.run(
        [sys.executable, "-c", BREAKING.format(*wrong_for) + RUN, *map(str, arguments)],
        capture_output=True,
        check=False,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )


def tree(directory: Path) -> dict[str, bytes]:
    """The files that cannot be made anew from others, and those of a quarantine."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.suffix in (".log", ".snapshot") or "quarantine" in str(path)
    }


def assert_stopped(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 1, done.stdout + done.stderr
    assert "this machine's checksum code is wrong" in done.stderr
    assert "Traceback" not in done.stderr


def break_in(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> None:
    right = getattr(module, name)
    monkeypatch.setattr(module, name, lambda data: right(data) ^ 1)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    directory = tmp_path / "disk" / "logs"
    for corpus, partition in (("k39-txn", "t-txn-0"), ("k08-codecs", "t-gzip-0")):
        shutil.copytree(Corpus(corpus).log_dir().partition(partition).path, directory / partition)
    return directory


# -- every place that decides -------------------------------------------------------------------------------


def first_entry(corpus: str, partition: str) -> bytes:
    """The first batch or message of a partition."""
    log = Corpus(corpus).log_dir().partition(partition).path / "00000000000000000000.log"
    data = log.read_bytes()
    return data[: 12 + int.from_bytes(data[8:12], "big")]


def verify(data: bytes, functions: ModuleType = kernel) -> None:
    table = BatchTable()
    functions.scan(data, 0, True, table)
    functions.verify(data, table)


def decode(data: bytes, functions: ModuleType = kernel) -> None:
    table = BatchTable()
    functions.scan(data, 0, True, table)
    functions.decode(data, table, 0, 1, RecordTable())


_kernel = compiled_or_twin("klog.kernel._kernel", "klog.kernel._pykernel")
_decoder = _kernel if _kernel is not _pykernel else _pydecode
BATCH, MESSAGE = first_entry("k39-txn", "t-txn-0"), first_entry("k08-codecs", "t-none-0")
SNAPSHOT = pack_snapshot({})


@pytest.mark.parametrize(
    ("module", "name", "check", "data"),
    [
        (record_batch, "crc32c", record_batch.parse, BATCH),
        (message_set, "crc32", message_set.parse, MESSAGE),
        (producer_snapshot, "crc32c", producer_snapshot.parse, SNAPSHOT),
        (producer_state, "crc32c", unpack_snapshot, SNAPSHOT),
        (_kernel, "crc32c", verify, BATCH),
        (_kernel, "crc32", verify, MESSAGE),
        (_decoder, "crc32", decode, MESSAGE),
        (_pykernel, "crc32c", partial(verify, functions=_pykernel), BATCH),
        (_pykernel, "crc32", partial(verify, functions=_pykernel), MESSAGE),
        (_pydecode, "crc32", partial(decode, functions=_pykernel), MESSAGE),
    ],
)
def test_a_checksum_that_crcmod_does_not_confirm_says_nothing_about_the_data(
    module: ModuleType,
    name: str,
    check: Callable[[bytes], object],
    data: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check(data)
    break_in(monkeypatch, module, name)
    with pytest.raises(ChecksumCodeError, match="checksum code is wrong"):
        check(data)


def test_a_module_that_computes_checksums_confirms_them_or_only_writes() -> None:
    only_write = {
        "backup/producing/batches.py",
        "convert/batches.py",
        "kernel/batch_builder.py",
        "replicas/fingerprints.py",
        "kernel/_conversion.pyx",
        "kernel/message_builder.py",
        # What `_produce_run.pyx` does not take is checked again in `storage/log/validation.py`.
        "protocol/_frame_run.pxi",
        # What `followed_batch` does not take is checked again by the kernel.
        "storage/log/follower_batches.py",
    }
    imports = re.compile(r"from klog\.formats\.checksums import (.*crc32.*)")
    found = {
        str(path.relative_to(PACKAGE)): match[1]
        for path in PACKAGE.rglob("*.p[yx]*")
        if path.suffix in (".py", ".pyx", ".pxi") and (match := imports.search(path.read_text())) is not None
    }
    assert {name for name, imported in found.items() if "confirm" not in imported} == only_write


COMMANDS = {
    "recover": ("recover", "--yes"),
    "verify": ("verify",),
    "rebuild-index": ("rebuild-index", "--force"),
    "snapshots": ("rebuild-index", "--snapshots"),
    "clean": ("clean", "--yes", "--policy", "compact", "--min-dirty-ratio", "0"),
    "convert": ("convert", "--compression", "zstd", "--all", "--yes"),
    "dump-segment": ("dump-segment",),
    "summary": ("dump-segment", "--summary"),
}


@pytest.mark.parametrize("partition", ["t-txn-0", "t-gzip-0"])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_changes_a_log_that_this_machine_cannot_check(
    command: str, partition: str, logs: Path
) -> None:
    before = tree(logs.parent)
    done = klog(*COMMANDS[command], logs / partition)
    assert_stopped(done)
    assert tree(logs.parent) == before


def test_reading_gives_nothing_for_damaged(logs: Path, tmp_path: Path) -> None:
    for command in (
        ("diff", logs / "t-txn-0", logs / "t-txn-0"),
        ("export", logs, "--output", tmp_path / "out", "--format", "jsonl"),
        ("backup", "run", logs, "--to", tmp_path / "repository"),
        ("metadata", "show", Corpus("k4-kraft").log_dir().path),
    ):
        assert_stopped(klog(*command))


def test_no_backup_counts_as_damaged(logs: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    done = klog("backup", "run", logs, "--to", repository, wrong_for=NOTHING)
    assert done.returncode == 0, done.stderr
    assert_stopped(klog("backup", "verify", repository))
    assert_stopped(klog("restore", repository, "--to", tmp_path / "restored"))


def test_damage_that_crcmod_sees_too_is_damage(logs: Path) -> None:
    (log,) = (logs / "t-txn-0").glob("*0.log")
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    done = klog("verify", logs / "t-txn-0", wrong_for=(1 << 30, 1 << 40))
    assert done.returncode == 1
    assert "fails its checksum" in done.stdout
    assert "checksum code" not in done.stdout + done.stderr


def test_crcmod_is_imported_only_for_checksums_that_differ(logs: Path) -> None:
    told = "import sys; print('crcmod' in sys.modules)"
    run = "import atexit; atexit.register(lambda: exec({!r})); from klog.commands.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", run.format(told), "dump-segment", str(logs)],
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1] == "False"


# -- the broker ---------------------------------------------------------------------------------------------

OPTIONS = ("-o", "listeners=PLAINTEXT://127.0.0.1:0")


def test_a_broker_whose_checksum_code_is_wrong_does_not_start(logs: Path) -> None:
    before = sorted(logs.rglob("*")), tree(logs.parent)
    done = klog("serve", *OPTIONS, "-o", f"log.dirs={logs}")
    assert_stopped(done)
    assert "the broker cannot start" in done.stderr
    assert (sorted(logs.rglob("*")), tree(logs.parent)) == before


@pytest.mark.parametrize("partition", ["t-txn-0", "t-gzip-0"])
def test_a_broker_does_not_recover_a_log_that_this_machine_cannot_check(partition: str, logs: Path) -> None:
    (other,) = (path for path in logs.iterdir() if path.name != partition)
    shutil.rmtree(other)
    before = tree(logs.parent)
    assert_stopped(klog("serve", *OPTIONS, "-o", f"log.dirs={logs}", wrong_for=BELOW_THE_BLOCK))
    assert tree(logs.parent) == before


@pytest.mark.parametrize("follows", [False, True], ids=["leader", "follower"])
def test_a_log_that_cannot_check_what_it_is_sent_goes_offline(
    follows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    background = building.Later()
    log = building.new_log(tmp_path, background=background)
    building.fill(log, 3)
    before = tree(tmp_path)
    sent = building.batch(base_offset=3 if follows else 0)
    break_in(monkeypatch, _kernel if follows else validation, "crc32c")
    send = (
        partial(log.append_as_follower, sent, 0, building.NOW_MS) if follows else partial(append, log, sent)
    )
    with pytest.raises(StorageError, match="checksum code is wrong"):
        send()
    assert log.closed
    assert [str(error) for error in background.failures if log.directory in str(error)]
    assert tree(tmp_path) == before


def test_the_cleaner_sets_a_log_aside_that_its_process_cannot_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "sitecustomize.py").write_text(BREAKING.format(*EVERYTHING))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "python"))
    log = make(tmp_path, 0)
    before = tree(log.directory)
    broker = Broker(tmp_path, log, clean=clean_in_worker)
    assert not broker.cleaner.clean_dirtiest()
    ((partition, error),) = broker.aside
    assert partition == log.partition
    assert isinstance(error, ChecksumCodeError)
    assert tree(log.directory) == before
