"""Every damage of a repository is found, and named with the backups that it concerns."""

from __future__ import annotations

import gzip
import random
from dataclasses import replace
from pathlib import Path

import pytest

from klog.backup.packing import Packer, compression_of
from klog.backup.reading import piece_bytes
from klog.backup.verify import Verified, VerifyOptions, state_problem, verify
from klog.formats.errors import StorageError
from klog.formats.names import FileKind, TopicPartition
from klog.storage.reading.producer_state import pack_snapshot
from tests.backup.repositories import Backups
from tests.export.logs import batch, replica, write_checkpoint, write_segment

ORDERS = TopicPartition("orders", 0)


@pytest.fixture(params=["none", "gzip", "zstd"])
def two(request, backups: Backups, logs: Path) -> Backups:
    """Two backups of a log; the second has a segment more."""
    backups.compression = request.param
    replica(logs / "orders-0", [batch(5 * each, 5, size=300) for each in range(8)])
    (logs / "orders-0" / "00000000000000000040.snapshot").write_bytes(pack_snapshot([]))
    backups.run(logs)
    write_segment(logs / "orders-0", [batch(40, 5, size=300)])
    backups.run(logs)
    return backups


def check(backups: Backups, **options: object) -> Verified:
    repository = backups.repository
    return verify(repository, repository.ids(), VerifyOptions(**options))  # type: ignore[arg-type]


def test_a_whole_repository(two: Backups) -> None:
    done = check(two)
    assert not done.findings
    assert (done.backups, done.read_objects) == (2, 3)
    assert done.read_bytes == sum(piece.size_bytes for piece in two.states()[ORDERS].pieces)


def test_a_sample_reads_a_part(two: Backups) -> None:
    assert check(two, share=0.4).read_objects == 1
    assert check(two, share=0.0).read_objects == 0


def test_every_object_that_is_missing_is_found(two: Backups) -> None:
    root = Path(two.place)
    for name in sorted(two.objects("") - {"klog-backup.json"}):
        if name.startswith("manifests/"):
            continue
        data = (root / name).read_bytes()
        (root / name).unlink()
        assert any(name in str(finding.what) for finding in check(two, share=0.0).findings), name
        (root / name).write_bytes(data)


def test_every_changed_byte_of_the_data_is_found(two: Backups) -> None:
    root, chance = Path(two.place), random.Random(5)
    for name in sorted(two.objects("data")):
        data = (root / name).read_bytes()
        for position in {0, len(data) - 1, *(chance.randrange(len(data)) for _ in range(8))}:
            changed = bytearray(data)
            changed[position] ^= 0x40
            (root / name).write_bytes(changed)
            findings = check(two).findings
            if name.endswith(".gz") and not findings:
                assert gzip.decompress(bytes(changed)) == gzip.decompress(data)  # only gzip's time or system
            else:
                assert any(name in str(finding.what) for finding in findings), (name, position)
        (root / name).write_bytes(data)


def test_a_shortened_object_is_found_in_any_sample(two: Backups) -> None:
    name = two.states()[ORDERS].pieces[-1].name
    path = Path(two.place) / name
    path.write_bytes(path.read_bytes()[:-1])

    [finding] = check(two, share=0.0).findings

    assert finding.backup == two.repository.ids()[-1]
    assert name in str(finding.what)


def test_an_object_with_the_same_batches_in_other_frames_is_whole(two: Backups) -> None:
    """As a run with --full may have stored it."""
    state = two.states()[ORDERS]
    for piece in state.pieces:
        data = b"".join(map(bytes, piece_bytes(two.repository, piece)))
        with (Path(two.place) / piece.name).open("wb") as file:
            packer = Packer(compression_of(piece.name), file.write)
            packer.add(memoryview(data)[:100])
            packer.add(memoryview(data)[100:])
            packer.finish()

    assert not check(two, share=0.0).findings


def test_a_damaged_document_is_found(two: Backups) -> None:
    for name in sorted(two.objects("states") | two.objects("tables")):
        path = Path(two.place) / name
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2])
        assert any(name in str(finding.what) for finding in check(two).findings), name
        path.write_bytes(data)


def test_a_reader_never_takes_damaged_bytes_for_good(two: Backups) -> None:
    state = two.states()[ORDERS]
    piece = state.pieces[0]
    path = Path(two.place) / piece.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)

    with pytest.raises(StorageError, match=path.name):
        list(piece_bytes(two.repository, piece))


def test_a_batch_that_was_bad_when_it_was_stored_is_found(backups: Backups, logs: Path, monkeypatch) -> None:
    path = write_segment(logs / "orders-0", [batch(0, 5), batch(5, 5)])
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    monkeypatch.setattr("klog.backup.copying.kernel.verify", lambda _data, table: 0)
    backups.run(logs)
    monkeypatch.undo()

    [finding] = check(backups).findings

    assert finding.what.what == "a batch fails its own checksum"


def test_pieces_out_of_order_are_a_problem(two: Backups) -> None:
    state = two.states()[ORDERS]
    first, second, third = state.pieces
    assert state_problem(state) is None
    assert "does not follow" in str(state_problem(replace(state, pieces=(second, first, third))))
    assert "offsets that do not ascend" in str(
        state_problem(replace(state, pieces=(first, replace(second, first_offset=3))))
    )


def test_the_older_high_watermark_of_a_broker_that_has_crashed_is_no_problem(
    backups: Backups, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier run has read more than it."""
    write_segment(logs / "orders-0", [batch(5 * each, 5) for each in range(8)])
    backups.run(logs)
    write_checkpoint(logs, FileKind.REPLICATION_CHECKPOINT, orders_0=30)
    monkeypatch.setattr("klog.backup.scanning.holder_of", lambda _path: "a broker")
    backups.run(logs)

    state = backups.states()[ORDERS]
    assert (state.end_offset, state.pieces[-1].end_offset) == (30, 40)
    assert not check(backups).findings
