"""Repositories that are encrypted: what comes back, what strangers see, and which keys open them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from klog.backup import keys, names
from klog.backup.encryption import CHUNK_BYTES
from klog.backup.keys import UserKey, key_from_environment, read_key
from klog.backup.model import RepositoryInfo
from klog.backup.prune import GRACE_MS, Rules, plan_prune, prune
from klog.backup.reading import open_backups
from klog.backup.repository import change_key, open_or_create
from klog.backup.store import open_store
from klog.backup.verify import VerifyOptions, verify
from klog.cluster_metadata import json_form
from klog.cluster_metadata.model import Cluster
from klog.formats.errors import KlogError, UsageError
from klog.formats.names import TopicPartition, parse_directory
from tests import corpora
from tests.backup.repositories import Backups, log_files
from tests.commands.running import Run, runner
from tests.export.logs import batch, replica, write_segment

ORDERS = TopicPartition("orders", 0)
KEY, OTHER = UserKey(b"the key of these tests"), UserKey(b"some other long phrase")


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """scrypt that takes little time."""
    monkeypatch.setattr(keys, "_COST", 16)


@pytest.fixture(params=["none", "gzip", "zstd"])
def backups(request: pytest.FixtureRequest, tmp_path: Path, cheap: None) -> Backups:
    return Backups(tmp_path / "repository", request.param, key=KEY)


@pytest.fixture
def two(backups: Backups, logs: Path) -> Backups:
    """Two backups of a log with metadata; the second has a segment more."""
    replica(logs / "orders-0", [batch(5 * each, 5, size=300) for each in range(8)])
    backups.run(logs, metadata=json_form.encode(Cluster(cluster_id="abc"), secrets=False))
    write_segment(logs / "orders-0", [batch(40, 5, size=300)])
    backups.run(logs)
    return backups


def findings(backups: Backups) -> list[str]:
    """What verify says, or what ends it."""
    try:
        repository = backups.repository
        found = verify(repository, repository.ids(), VerifyOptions()).findings
    except KlogError as error:
        return [str(error)]
    return [str(finding.what) for finding in found]


@pytest.mark.parametrize("corpus", ["k39-txn", "k39-compact", "k08-codecs"])
def test_what_kafka_wrote_comes_back_byte_for_byte(corpus: str, backups: Backups) -> None:
    log_directory = corpora.Corpus(corpus).log_dir()
    backups.run(log_directory.path)

    assert findings(backups) == []
    for directory in log_directory.partitions():
        partition = parse_directory(directory.name).partition
        kept = backups.segments(*partition)
        assert kept
        assert kept == {name: data for name, data in log_files(directory.path).items() if name in kept}


def test_a_large_object_comes_back(backups: Backups, logs: Path) -> None:
    replica(logs / "orders-0", [batch(each, size=200_000) for each in range(20)], segment_batches=20)
    backups.run(logs)
    assert backups.segments("orders") == log_files(logs / "orders-0")
    [piece] = backups.states()[ORDERS].pieces
    assert piece.size_bytes > 20 * CHUNK_BYTES


def test_strangers_see_names_sizes_and_times_only(two: Backups) -> None:
    root = Path(two.place)
    state = two.states()[ORDERS]
    digests = [piece.sha256 for piece in state.pieces]
    for path in root.rglob("*"):
        if path.is_file():
            assert path.suffix == ".enc" or path.name == names.INFO or path.parent.name == names.KEYS
            assert not any(digest[:16] in path.name for digest in digests)
            if path.suffix == ".enc":
                assert b"orders" not in path.read_bytes()
                assert path.read_bytes()[:2] != b"\x1f\x8b"


def test_equal_content_is_stored_once(two: Backups, logs: Path) -> None:
    before = two.objects()
    os.utime(next((logs / "orders-0").glob("*.log")), (1, 1))
    two.run(logs)
    assert two.objects() == before


def test_every_changed_byte_is_found(two: Backups) -> None:
    for path in sorted(path for path in Path(two.place).rglob("*") if path.is_file()):
        data = path.read_bytes()
        for position in range(0, len(data), 1 + len(data) // 12):
            changed = bytearray(data)
            changed[position] ^= 0x01
            path.write_bytes(changed)
            assert findings(two), (path.name, position)
        path.write_bytes(data)
    assert findings(two) == []


def test_swapped_objects_are_found(two: Backups) -> None:
    root = Path(two.place)
    one, other, *_ = sorted((root / "data" / "orders-0").glob("*.log*"))
    data = one.read_bytes()
    shutil.copy(other, one)
    assert any(one.name in each for each in findings(two))
    one.write_bytes(data)

    first, second = sorted((root / names.MANIFESTS).rglob("*.enc"))
    shutil.copy(first, second)
    assert any(second.name in each and "another object" in each for each in findings(two))


def test_an_unencrypted_object_is_not_taken(two: Backups) -> None:
    path = next((Path(two.place) / names.MANIFESTS).rglob("*.enc"))
    path.with_suffix("").write_bytes(two.repository.store.read(f"manifests/{path.parent.name}/{path.stem}"))
    path.unlink()
    assert len(two.repository.ids()) == 1


def test_no_key_and_a_wrong_key_are_said_before_anything_is_done(two: Backups, logs: Path) -> None:
    objects = sorted(Path(two.place).rglob("*"))
    with pytest.raises(UsageError, match="--encryption-key-file"):
        open_backups(str(two.place))
    with pytest.raises(UsageError, match="the encryption key is not the key of this repository"):
        open_backups(str(two.place), key=OTHER)
    two.key = OTHER
    with pytest.raises(UsageError, match="the encryption key is not the key of this repository"):
        two.run(logs)
    assert sorted(Path(two.place).rglob("*")) == objects


def test_a_plain_repository_is_not_taken_for_an_encrypted_one(tmp_path: Path, logs: Path) -> None:
    Backups(tmp_path / "plain").run(logs)
    with pytest.raises(UsageError, match="the repository is not encrypted"):
        open_backups(str(tmp_path / "plain"), key=KEY)


def test_a_lost_data_key_is_said(two: Backups) -> None:
    [path] = (Path(two.place) / names.KEYS).iterdir()
    path.unlink()
    with pytest.raises(UsageError, match=f"{path.name}: the data key of the repository is missing"):
        open_backups(str(two.place), key=KEY)


def test_prune_keeps_the_data_keys(two: Backups, logs: Path) -> None:
    shutil.rmtree(logs / "orders-0")
    replica(logs / "orders-0", [batch(0, 5)])
    newest = two.run(logs).manifest.id
    plan = plan_prune(two.repository, Rules(last=1), two.now_ms + 2 * GRACE_MS)
    assert plan.objects
    prune(two.repository, plan, lambda _name: None)

    assert two.repository.ids() == [newest]
    assert findings(two) == []
    assert len(list((Path(two.place) / "data" / "orders-0").iterdir())) == 1


def test_another_key_opens_a_repository_after_rekey(two: Backups) -> None:
    segments = two.segments("orders")
    assert change_key(open_store(str(two.place)), KEY, OTHER) == 1

    with pytest.raises(UsageError, match="is not the key"):
        open_backups(str(two.place), key=KEY)
    two.key = OTHER
    assert two.segments("orders") == segments
    assert findings(two) == []


def test_a_wrong_old_key_changes_nothing(two: Backups) -> None:
    [path] = (Path(two.place) / names.KEYS).iterdir()
    before = path.read_bytes()
    for wrong in (OTHER, None):
        with pytest.raises(UsageError):
            change_key(open_store(str(two.place)), wrong, OTHER)
    assert path.read_bytes() == before


def test_two_runs_that_make_the_repository_at_once_lose_nothing(tmp_path: Path, cheap: None) -> None:
    backups = Backups(tmp_path / "repository", key=KEY)
    for number in (1, 2):
        replica(tmp_path / f"broker{number}" / f"orders-{number}", [batch(0, 5)])

    def the_other_is_faster() -> None:
        backups.run(tmp_path / "broker1")

    slow = open_or_create(
        open_store(str(backups.place)), RepositoryInfo("later"), KEY, on_create=the_other_is_faster
    )
    backups.run(tmp_path / "broker2")

    assert slow.info == backups.repository.info
    assert len(list((tmp_path / "repository" / names.KEYS).iterdir())) == 2
    assert findings(backups) == []
    for number in (1, 2):
        assert backups.segments("orders", number) == log_files(
            tmp_path / f"broker{number}" / f"orders-{number}"
        )

    # A rekey that was interrupted after one of both goes on.
    store = open_store(str(backups.place))
    secondary = next(
        each for each in store.files(names.KEYS) if backups.repository.info.encryption.key not in each
    )
    data = store.read(secondary)
    change_key(store, KEY, OTHER)
    rewrapped = store.read(secondary)
    store.put(secondary, data)
    backups.key = OTHER
    assert any("is not the key" in each for each in findings(backups))
    store.put(secondary, rewrapped)
    assert findings(backups) == []


def test_an_interrupted_rekey_goes_on(tmp_path: Path, logs: Path, cheap: None) -> None:
    backups = Backups(tmp_path / "repository", key=KEY)
    replica(logs / "orders-0", [batch(0, 5)])
    store = open_store(str(backups.place))
    open_or_create(store, RepositoryInfo("test"), KEY, on_create=lambda: backups.run(logs))
    [current] = [each for each in store.files(names.KEYS) if backups.repository.info.encryption.key in each]
    before = store.read(current)
    change_key(store, KEY, OTHER)
    store.put(current, before)  # it was killed before the last one

    assert change_key(store, KEY, OTHER) == 2

    backups.key = OTHER
    assert findings(backups) == []


def test_runs_at_the_same_time_do_no_harm(two: Backups, logs: Path) -> None:
    write_segment(logs / "orders-0", [batch(45, 5, size=300)])
    threads = [threading.Thread(target=two.run, args=(logs,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(two.repository.ids()) == 5
    assert findings(two) == []
    assert two.segments("orders") == log_files(logs / "orders-0")


def test_a_run_that_is_killed_leaves_the_repository_valid_and_the_next_one_goes_on(
    tmp_path: Path, logs: Path
) -> None:
    backups = Backups(tmp_path / "repository", key=KEY)
    for number in range(12):
        replica(logs / f"orders-{number}", [batch(5 * each, 5, size=4000) for each in range(8)])
    backups.run(logs)
    for number in range(12):
        write_segment(logs / f"orders-{number}", [batch(40 + 5 * each, 5, size=4000) for each in range(8)])
    unfinished = tmp_path / "repository" / "_klog" / "unfinished"
    command = [sys.executable, "-m", "klog", "backup", "run", str(logs), "--to", str(backups.place), "-q"]
    environment = {**os.environ, "KLOG_BACKUP_KEY": KEY.secret.decode()}
    with subprocess.Popen(command, env=environment) as process:
        while process.poll() is None and not os.listdir(unfinished):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert findings(backups) == []

    backups.now_ms += 10_000
    backups.run(logs)

    assert findings(backups) == []
    for number in range(12):
        assert backups.segments("orders", number) == log_files(logs / f"orders-{number}")


# -- Keys of users ------------------------------------------------------------------------------------------


def test_a_key_has_at_least_16_bytes(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"too short\n")
    with pytest.raises(UsageError, match="key: an encryption key has at least 16 bytes"):
        read_key(tmp_path / "key")


def test_the_environment_has_the_key_or_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY.secret + b"\n")
    assert key_from_environment({"KLOG_BACKUP_KEY": KEY.secret.decode()}) == KEY
    assert key_from_environment({"KLOG_BACKUP_KEY_FILE": str(tmp_path / "key")}) == KEY
    assert key_from_environment({}) is None


def test_the_key_is_not_shown() -> None:
    assert "the key of" not in repr(KEY)


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cheap: None) -> Run:
    return runner(capfd, monkeypatch)


def test_every_command_takes_the_key(klog: Run, logs: Path, tmp_path: Path) -> None:
    key, new = tmp_path / "key", tmp_path / "new"
    for path, secret in ((key, KEY.secret), (new, OTHER.secret)):
        path.write_bytes(secret)
        path.chmod(0o600)
    replica(logs / "orders-0", [batch(5 * each, 5) for each in range(8)])
    place, with_key = tmp_path / "r", ("--encryption-key-file", key)

    done = klog("backup", "run", logs, "--to", place, *with_key)
    assert done.code == 0
    assert "whoever loses it has lost the backups" in done.err
    assert klog("backup", "run", logs, "--to", place, *with_key).err == ""
    for command in (["backup", "list"], ["backup", "show"], ["backup", "verify"],
                    ["backup", "prune", "--keep-last", "1", "--dry-run"]):  # fmt: skip
        assert klog(*command, place, *with_key).code == 0, command
        refused = klog(*command, place)
        assert (refused.code, "the repository is encrypted" in refused.err) == (2, True), command
    done = klog("backup", "rekey", place, *with_key, "--new-key-file", new)
    assert done.code == 0
    done = klog("restore", place, "--to", tmp_path / "restored", "-q", "--encryption-key-file", new)
    assert done.code == 0, done.err
    assert log_files(tmp_path / "restored" / "orders-0") == log_files(logs / "orders-0")


def test_an_open_key_file_is_noted_and_no_key_is_ever_printed(klog: Run, logs: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(KEY.secret)
    key.chmod(0o644)
    done = klog("backup", "run", logs, "--to", tmp_path / "r", "--encryption-key-file", key)
    assert "chmod 600" in done.err
    assert KEY.secret.decode() not in done.out + done.err
    key.write_bytes(OTHER.secret)
    done = klog("backup", "list", tmp_path / "r", "--encryption-key-file", key)
    assert done.code == 2
    assert OTHER.secret.decode() not in done.out + done.err
