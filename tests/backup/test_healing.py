"""What a repository has lost is stored anew from the source, under the same names, so that old moments come
back.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.backup.catalogue import write_summary
from klog.backup.keys import UserKey
from klog.backup.run import Result
from klog.backup.verify import Finding, VerifyOptions, verify
from klog.cluster_metadata import json_form
from klog.cluster_metadata.model import Cluster
from klog.formats.names import TopicPartition
from klog.storage.reading.producer_state import pack_snapshot
from tests.backup.repositories import Backups
from tests.commands.running import runner
from tests.export.logs import batch, replica, write_segment

ORDERS = TopicPartition("orders", 0)
METADATA = json_form.encode(Cluster(cluster_id="abc"))


def orders(first: int, end: int) -> list[bytes]:
    return [batch(offset, 5, size=300) for offset in range(first, end, 5)]


def findings(backups: Backups) -> list[Finding]:
    repository = backups.repository
    return verify(repository, repository.ids(), VerifyOptions()).findings


def heal(backups: Backups, *sources: Path, **changes: object) -> Result:
    """A run after a check."""
    return backups.run(*sources, damaged=findings(backups), **changes)


def path_of(backups: Backups, name: str) -> Path:
    file = Path(backups.place) / name
    return file if file.exists() else file.with_name(f"{file.name}.enc")


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


@pytest.fixture
def two(backups: Backups, logs: Path) -> Backups:
    """Two backups of a log that has grown: three pieces, the last one in a segment of its own."""
    directory = replica(logs / "orders-0", orders(0, 60), segment_batches=8)
    (directory / "00000000000000000060.snapshot").write_bytes(pack_snapshot([]))
    backups.run(logs, metadata=METADATA)
    write_segment(directory, orders(40, 80))
    write_segment(directory, orders(80, 100))
    backups.run(logs)
    return backups


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("is_missing", [True, False])
def test_all_that_the_source_still_has_comes_back(
    request, backups: Backups, logs: Path, compression: str, is_missing: bool
) -> None:
    backups.compression = compression
    two = request.getfixturevalue("two")
    first, _ = two.repository.ids()
    before, names = two.segments("orders", 0, first), two.objects("data")
    for name in names:
        if is_missing:
            path_of(two, name).unlink()
        else:
            spoil(path_of(two, name))

    result = heal(two, logs)

    assert (result.is_clean, result.healed, result.changed) == (True, len(names), 0)
    assert not findings(two)
    assert two.objects("data") == names
    assert two.segments("orders", 0, first) == before


def test_objects_of_an_encrypted_repository_come_back(tmp_path: Path, logs: Path) -> None:
    backups = Backups(tmp_path / "repository", "zstd", key=UserKey(b"a phrase that is long enough"))
    replica(logs / "orders-0", orders(0, 40))
    backups.run(logs)
    for name in backups.objects("data"):
        spoil(path_of(backups, name))

    assert heal(backups, logs).is_clean
    assert not findings(backups)


def test_metadata_and_summaries_come_back(two: Backups, logs: Path) -> None:
    summary = write_summary(two.repository, two.repository.ids())
    assert summary is not None
    [metadata] = two.objects("metadata")
    names = [*two.objects("summaries"), metadata]
    for name in names:
        path_of(two, name).write_bytes(b"")

    result = heal(two, logs, metadata=METADATA)

    assert (result.is_clean, result.healed) == (True, len(names))
    assert not findings(two)


def test_metadata_that_is_another_one_now_is_said_to_be_lost(two: Backups, logs: Path) -> None:
    [name] = two.objects("metadata")
    path_of(two, name).unlink()

    result = heal(two, logs, metadata=json_form.encode(Cluster(cluster_id="abc", features={"a": 1})))

    [problem] = result.manifest.problems
    assert problem.what == (
        f"{two.place}/{name} is missing, and the source has something else in its place now; "
        f"backup {two.repository.ids()[-2]} needs it"
    )
    assert heal(two, logs).manifest.metadata is not None


def test_a_replica_whose_segments_begin_elsewhere_has_the_same_batches(
    two: Backups, logs: Path, tmp_path: Path
) -> None:
    for name in two.objects("data"):
        path_of(two, name).unlink()
    other = tmp_path / "other"
    directory = replica(other / "orders-0", orders(0, 100), segment_batches=5)
    (directory / "00000000000000000060.snapshot").write_bytes(pack_snapshot([]))

    assert heal(two, other).is_clean
    assert not findings(two)


def test_what_retention_has_deleted_at_the_source_is_said_to_be_lost(two: Backups, logs: Path) -> None:
    second = two.repository.ids()[-1]
    piece = two.states()[ORDERS].pieces[0]
    path_of(two, piece.name).unlink()
    (logs / "orders-0" / "00000000000000000000.log").unlink()

    result = heal(two, logs)

    [problem] = result.manifest.problems
    assert problem.partition == ORDERS
    assert problem.what == (
        f"{two.place}/{piece.name} (offsets 0 to 39) is missing, and the source no longer has it; "
        f"backup {second} needs it"
    )
    [finding] = findings(two)
    assert (finding.name, finding.backup) == (piece.name, second)
    assert two.states()[ORDERS].log_start_offset == 40


def test_a_log_that_was_compacted_since_is_whole_in_the_new_backup(two: Backups, logs: Path) -> None:
    piece = two.states()[ORDERS].pieces[0]
    spoil(path_of(two, piece.name))
    compacted = [each for number, each in enumerate(orders(0, 40)) if number % 2]
    write_segment(logs / "orders-0", compacted, base=0)

    result = heal(two, logs)

    [problem] = result.manifest.problems
    assert "offsets 0 to 39" in problem.what
    assert "the source has something else in its place now" in problem.what
    repository = two.repository
    assert not verify(repository, [result.manifest.id], VerifyOptions()).findings
    assert two.segments("orders")["00000000000000000000.log"] == b"".join(compacted)


def test_another_partition_than_those_of_the_run_stays_lost(two: Backups, logs: Path, tmp_path: Path) -> None:
    replica(tmp_path / "other" / "payments-0", orders(0, 10))
    for piece in two.states()[ORDERS].pieces:
        path_of(two, piece.name).unlink()

    result = heal(two, tmp_path / "other")

    assert {each.partition for each in result.manifest.problems} == {ORDERS}
    assert all("do not have the partition" in each.what for each in result.manifest.problems)


def test_damaged_states_stay_lost_and_the_next_backup_is_whole(two: Backups, logs: Path) -> None:
    whole = min(two.objects("states"))
    path_of(two, whole).write_bytes(b"")

    result = heal(two, logs)

    assert any(whole in each.what and "no source has this" in each.what for each in result.manifest.problems)
    assert result.changed == 1  # although its files have not changed
    repository = two.repository
    assert not verify(repository, [result.manifest.id], VerifyOptions()).findings


def test_damaged_states_hide_no_other_damage(two: Backups, logs: Path) -> None:
    replica(logs / "payments-0", orders(0, 10))
    two.run(logs)
    [payments] = two.states()[TopicPartition("payments", 0)].pieces
    states = max(two.objects("states") - {max(two.objects("states"))})
    path_of(two, states).write_bytes(b"")
    path_of(two, payments.name).unlink()

    found = findings(two)

    assert [each.name for each in found if each.content] == [payments.name]
    assert sum(states in str(each.what) for each in found) == 1


def test_the_command_that_verify_names_makes_the_repository_whole(
    two: Backups, logs: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    klog = runner(capfd, monkeypatch)
    name = two.states()[ORDERS].pieces[0].name
    spoil(path_of(two, name))
    done = klog("backup", "verify", two.place)
    assert done.code == 1
    _, _, after = done.err.partition("if the source still has this: klog ")
    command = after.partition(";")[0]
    assert command == f"backup run {logs} --to {two.place} --full"

    done = klog(*command.split())

    assert (done.code, done.err) == (0, "")
    assert ", 1 damaged object stored anew, " in done.out
    done = klog("backup", "verify", two.place)
    assert (done.code, done.err) == (0, "")


def test_a_full_run_is_one_run(
    logs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    klog = runner(capfd, monkeypatch)
    done = klog("backup", "run", logs, "--to", tmp_path / "repository", "--full", "--every", "10s")
    assert done.code == 2
    assert "--full and --every exclude each other" in done.err
    assert not (tmp_path / "repository").exists()
