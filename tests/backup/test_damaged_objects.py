"""Each kind of object of a repository is damaged in each way, and each command meets it.

The tables say which commands end with an error. Whatever they do, there is no traceback, an error names the
object, and nothing is removed or changed that a backup needs.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from klog.backup import documents
from klog.backup.keys import UserKey
from klog.backup.restoring.target import INCOMPLETE
from klog.cluster_metadata import json_form
from klog.cluster_metadata.model import Cluster
from klog.formats.errors import FormatError
from klog.storage.reading.producer_state import pack_snapshot
from tests.backup.repositories import Backups, log_files
from tests.commands.running import Run, runner
from tests.export.logs import batch, replica

KEY = "a phrase that is long enough"
SECOND_MS = 1000
HOUR_S = 3600

# 1: the command ends with an error that names the object. 0: it does not need the object.
# "show" shows the newest backup, "older" restores the one before by its id, "skip" is restore --skip-damaged,
# "run" has something to add to one of the logs.
TABLE = """
                verify  list  show  restore  skip  older  prune  run
info                 1     1     1        1     1      1      1    1
key                  1     1     1        1     1      1      1    1
newest-manifest      1     1     1        1     1      0      1    1
older-manifest       1     1     0        0     0      1      0    0
table                1     1     1        1     1      1      1    1
whole-states         1     0     0        1     1      1      1    1
added-states         1     0     0        1     1      0      1    1
piece                1     0     0        1     1      1      0    0
snapshot             1     0     0        1     1      0      0    0
metadata             1     0     0        1     1      1      0    0
"""
# A backup without its manifest is none: only who asks for its id notices.
MISSING = """
newest-manifest      0     0     1        0     0      0      0    0
older-manifest       0     0     0        0     0      1      0    0
"""
# What --skip-damaged brings back of the log "orders", which had 45 records in the newest backup.
SKIPPED = {
    "newest-manifest": [(0, 40)],
    "older-manifest": [(0, 45)],
    "added-states": [],
    "piece": [(20, 45)],
    "snapshot": [(0, 45)],
    "metadata": [(0, 45)],
}
# Where a run makes a whole backup although the one before is damaged.
WHOLE_AFTER_A_RUN = ("newest-manifest", "older-manifest", "table", "added-states")


def _missing(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


FAULTS: Mapping[str, Callable[[Path], None]] = {
    "missing": _missing,
    "empty": _empty,
    "truncated": _truncated,
    "changed": _changed,
}


def _expected(table: str) -> dict[str, dict[str, int]]:
    commands = TABLE.split("\n")[1].split()
    rows = [line.split() for line in table.splitlines() if line.strip() and not line.startswith(" ")]
    return {kind: dict(zip(commands, map(int, codes), strict=True)) for kind, *codes in rows}


EXPECTED = _expected(TABLE)
EXPECTED_IF_MISSING = {**EXPECTED, **_expected(MISSING)}


@dataclass(frozen=True, slots=True)
class Made:
    """A repository with two backups, its files by kind, and the logs, which have grown since."""

    repository: Path
    logs: Path
    files: Mapping[str, str]
    ids: tuple[str, str]

    def copied(self, to: Path) -> Made:
        shutil.copytree(self.repository, to)
        return Made(to, self.logs, self.files, self.ids)


def _write(logs: Path, orders: int) -> None:
    """Two logs, written long ago: the first has so many batches and a snapshot at its end."""
    directory = replica(logs / "orders-0", [batch(5 * each, 5, size=300) for each in range(orders)])
    for path in directory.glob("*.snapshot"):
        path.unlink()
    (directory / f"{5 * orders:020d}.snapshot").write_bytes(pack_snapshot([]))
    if not (logs / "payments-0").exists():
        replica(logs / "payments-0", [batch(5 * each, 5) for each in range(4)])
    for path in logs.glob("*/*.log"):
        os.utime(path, (time.time() - HOUR_S,) * 2)


def _make(directory: Path, key: UserKey | None) -> Made:
    logs, place = directory / "logs", directory / "repository"
    backups = Backups(place, key=key, now_ms=time.time_ns() // 1_000_000 - 10 * SECOND_MS)
    _write(logs, 8)
    metadata = json_form.encode(Cluster(cluster_id="abc", features={"kraft.version": 1}))
    first = backups.run(logs, metadata=metadata).manifest.id
    before = backups.objects("")
    _write(logs, 9)
    second = backups.run(logs).manifest
    [added] = {each for each in backups.objects("") - before if each.startswith("states/")}
    [whole] = {each for each in before if each.startswith("states/")}
    [table] = {each for each in before if each.startswith("tables/")}
    [stored] = {each for each in before if each.startswith("metadata/")}
    state = backups.states()[min(backups.states())]
    assert state.snapshot is not None
    names = {
        "info": "klog-backup.json",
        "newest-manifest": _manifest(second.id),
        "older-manifest": _manifest(first),
        "table": table,
        "whole-states": whole,
        "added-states": added,
        "piece": state.pieces[0].name,
        "snapshot": state.snapshot.stored.name,
        "metadata": stored,
        "key": "".join(each for each in before if each.startswith("keys/")),
    }
    files = {kind: name if (place / name).exists() else f"{name}.enc" for kind, name in names.items()}
    _write(logs, 10)
    return Made(place, logs, files, (first, second.id))


def _manifest(identifier: str) -> str:
    return f"manifests/{identifier[:4]}-{identifier[4:6]}-{identifier[6:8]}/{identifier}.json"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return _make(tmp_path_factory.mktemp("plain"), None)


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return _make(tmp_path_factory.mktemp("encrypted"), UserKey(KEY.encode()))


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


def _words(command: str, made: Made, target: Path) -> list[object]:
    place, (older, newest) = made.repository, made.ids
    restore: list[object] = ["restore", place, "--to", target, "-q"]
    return {
        "verify": ["backup", "verify", place],
        "list": ["backup", "list", place],
        "show": ["backup", "show", place, newest],
        "restore": restore,
        "skip": [*restore, "--skip-damaged"],
        "older": [*restore, "--backup", older],
        "prune": ["backup", "prune", place, "--keep-last", "1", "--grace", "0s", "--no-runs", "--yes"],
        "run": ["backup", "run", made.logs, "--to", place, "-q"],
    }[command]


def _objects(place: Path) -> dict[str, bytes]:
    """All files but those that were being written."""
    found = {path.relative_to(place): path for path in place.rglob("*") if path.is_file()}
    return {str(name): path.read_bytes() for name, path in found.items() if name.parts[0] != "_klog"}


def _differences(klog: Run, made: Made, kind: str, expected: Mapping[str, int], tmp_path: Path) -> list[str]:
    """Play all commands to a damaged repository: what is not as expected."""
    found = []
    name = made.files[kind].removesuffix(".enc")
    identifier = made.ids[0 if kind == "older-manifest" else 1]
    for command, code in expected.items():
        place = made.copied(tmp_path / command)
        before = _objects(place.repository)
        done = klog(*_words(command, place, tmp_path / f"{command}-target"))
        if done.code != code or ((name in done.err or identifier in done.err) < code):
            found.append(f"{command}: {done}")
        if "Traceback" in done.err:
            found.append(f"{command}: {done}")
        removes = command == "prune" and code == 0
        if not removes and not before.items() <= _objects(place.repository).items():
            found.append(f"{command} has removed or changed objects")
        if removes:
            found += _missing_objects(klog, place, before)
    return found


def _missing_objects(klog: Run, made: Made, before: Mapping[str, bytes]) -> list[str]:
    """The objects that a prune has removed and the newest backup needs."""
    done = klog("backup", "verify", made.repository, "-q")
    return [name for name in before if f"{name}: is missing" in done.err and name in before]


def _restored(directory: Path) -> bytes:
    return b"".join(log_files(directory / "orders-0").values())


def _records(*ranges: tuple[int, int]) -> bytes:
    """The log with these ranges of offsets."""
    return b"".join(batch(each, 5, size=300) for first, end in ranges for each in range(first, end, 5))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", [each for each in EXPECTED if each != "key"])
def test_an_object_that_is(klog: Run, plain: Made, tmp_path: Path, kind: str, fault: str) -> None:
    made = plain.copied(tmp_path / "made")
    FAULTS[fault](made.repository / made.files[kind])
    expected = (EXPECTED_IF_MISSING if fault == "missing" else EXPECTED)[kind]

    assert _differences(klog, made, kind, expected, tmp_path) == []
    if kind in SKIPPED:
        assert _restored(tmp_path / "skip-target") == _records(*SKIPPED[kind])
    if expected["restore"] and (tmp_path / "restore-target").exists():
        assert (tmp_path / "restore-target" / INCOMPLETE).exists()
    if kind in WHOLE_AFTER_A_RUN:
        done = klog("restore", tmp_path / "run", "--to", tmp_path / "after")
        assert (done.code, _restored(tmp_path / "after")) == (0, _records((0, 50)))


@pytest.mark.parametrize("kind", EXPECTED)
def test_an_encrypted_object_that_is_changed(
    klog: Run, encrypted: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("KLOG_BACKUP_KEY", KEY)
    made = encrypted.copied(tmp_path / "made")
    _changed(made.repository / made.files[kind])

    assert _differences(klog, made, kind, EXPECTED[kind], tmp_path) == []


def test_every_changed_byte_of_a_document_is_found(plain: Made) -> None:
    for kind, decode in (("info", documents.INFO.decode), ("newest-manifest", documents.MANIFEST.decode)):
        data = (plain.repository / plain.files[kind]).read_bytes()
        for position in range(len(data) - 1):  # the last byte is the line's end
            changed = bytearray(data)
            changed[position] ^= 1
            with pytest.raises(FormatError):
                decode(bytes(changed))
