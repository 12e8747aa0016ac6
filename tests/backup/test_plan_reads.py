"""A plan without the sizes of batches reads only the pieces that may hold the end, and finds the same cut."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import BinaryIO

import pytest

from klog.backup import documents, pieces
from klog.backup.model import Piece, ProducerSummary
from klog.backup.reading import open_piece
from klog.backup.repository import Repository
from klog.backup.restoring import request as requests
from klog.backup.restoring.histories import Detail
from klog.backup.restoring.plan import RestorePlan
from klog.backup.restoring.request import RestoreRequest, plan_of, select
from klog.backup.restoring.selection import RepositoryPieces
from klog.formats.errors import FormatError
from tests import corpora
from tests.backup.repositories import Backups
from tests.export.logs import batch, marker, replica, transactional, write_segment


class CountedPieces(RepositoryPieces):
    opened: list[str]

    def __init__(self, repository: Repository) -> None:
        super().__init__(repository)
        self.repository = repository

    def open_piece(self, piece: Piece) -> BinaryIO:
        self.opened.append(piece.name)
        return open_piece(self.repository, piece)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    CountedPieces.opened = []
    monkeypatch.setattr(requests, "RepositoryPieces", CountedPieces)
    return CountedPieces.opened


def plan(backups: Backups, request: RestoreRequest, detail: Detail = Detail.BATCHES) -> RestorePlan:
    repository = backups.repository
    return plan_of(repository, request, select(repository, request), detail=detail)


def cuts(found: RestorePlan) -> list[object]:
    return [(each.target, each.cut, each.size_bytes) for each in found.partitions]


def test_the_cut_is_the_same_at_every_moment(backups: Backups, logs: Path, opened: list[str]) -> None:
    first_ms = backups.now_ms
    replica(logs / "orders-0", [batch(0, 5, at=first_ms - 9000), batch(5, 5, at=first_ms - 8000)])
    backups.run(logs)
    write_segment(logs / "orders-0", [batch(10, 5, at=first_ms + 1200), batch(15, 5, at=first_ms + 1600)])
    write_segment(logs / "orders-0", [batch(20, 5, at=first_ms + 1800)])
    backups.run(logs)
    fewer = 0
    for at_ms in range(first_ms - 1000, first_ms + 9000, 100):
        request = RestoreRequest(at_ms)
        everything = cuts(plan(backups, request))
        all_opened = len(opened)
        opened.clear()
        assert cuts(plan(backups, request, Detail.CUT)) == everything
        fewer += all_opened - len(opened)
        opened.clear()

    assert fewer > 0


def test_the_end_of_a_backup_needs_no_piece_without_transactions(
    backups: Backups, logs: Path, opened: list[str]
) -> None:
    replica(logs / "orders-0", [batch(5 * each, 5) for each in range(4)])
    replica(logs / "paid-0", [transactional(0, 5, 7), marker(5, 7, 1), transactional(6, 5, 7)])
    backups.run(logs)

    found = plan(backups, RestoreRequest(), Detail.CUT)

    assert all("paid-0" in name for name in opened)
    (_, paid) = found.partitions
    assert [each.marker.aborted for each in paid.cut.added] == [True]


def test_what_coordinators_decided_is_read_although_these_batches_are_not_transactional(
    backups: Backups, opened: list[str]
) -> None:
    """Without them a transaction that was decided by the moment would end with its newest marker only."""
    backups.run(corpora.Corpus("k39-txn").log_dir().path)

    request = RestoreRequest(wants=lambda topic: topic == "t-txn")
    lazily = cuts(plan(backups, request, Detail.CUT))

    assert {name.split("/")[1] for name in opened} >= {"__transaction_state-0", "__transaction_state-1"}
    assert lazily == cuts(plan(backups, request))


OLD_MS = 3_600_000


def paid(backups: Backups, logs: Path) -> None:
    """A transaction that ended an hour ago, in a backup of its own, and the next one of the same producer."""
    at_ms = backups.now_ms - OLD_MS
    replica(logs / "paid-0", [transactional(0, 5, 7, at=at_ms), marker(5, 7, 1, at=at_ms + 9)])
    backups.run(logs)
    write_segment(logs / "paid-0", [transactional(6, 5, 7, at=backups.now_ms), marker(11, 7, 0)])
    backups.run(logs)


def test_transactions_that_ended_long_ago_are_not_read(
    backups: Backups, logs: Path, opened: list[str]
) -> None:
    paid(backups, logs)

    found = cuts(plan(backups, RestoreRequest(), Detail.CUT))

    first, second = (piece.name for state in backups.states().values() for piece in state.pieces)
    assert opened == [second]
    assert found == cuts(plan(backups, RestoreRequest()))
    assert opened == [second, first, second]


def test_pieces_without_a_summary_are_read(
    backups: Backups, logs: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So are those of repositories that an older klog has made."""
    monkeypatch.setattr(pieces, "_MOST_PRODUCERS", 0)
    paid(backups, logs)

    plan(backups, RestoreRequest(), Detail.CUT)

    assert len(opened) == 2


def test_a_state_says_what_each_piece_changes_for_transactions(backups: Backups, logs: Path) -> None:
    at_ms = backups.now_ms - OLD_MS
    written = [
        transactional(0, 5, 7, at=at_ms),
        transactional(5, 5, 8, at=at_ms + 1),
        marker(10, 7, 1, at=at_ms + 20),
        transactional(11, 2, 7, at=at_ms + 30),
        transactional(13, 2, 7, at=at_ms + 40),
    ]
    replica(logs / "paid-0", written)
    replica(logs / "orders-0", [batch(0, 5)])
    backups.run(logs)

    producers = {
        partition.topic: [piece.producers for piece in state.pieces]
        for partition, state in backups.states().items()
    }

    assert producers == {
        "orders": [None],
        "paid": [
            (
                ProducerSummary(7, at_ms + 20, 0, 0, 11, 13, at_ms + 31),
                ProducerSummary(8, -1, -1, 0, 5, 10, at_ms + 5),
            ),
            (ProducerSummary(7, -1, -1, 0, 13, 15, at_ms + 41),),
        ],
    }


def test_a_summary_that_is_no_list_of_numbers_is_an_error(backups: Backups, logs: Path) -> None:
    paid(backups, logs)
    [state] = backups.states().values()
    data = gzip.decompress(documents.encode_states([documents.StoredState(state)]))
    content, _, _ = data.rpartition(b',"checksum"')

    with pytest.raises(FormatError, match=r"pieces\[0\]\.producers\[0\] is not a list of 7 numbers"):
        documents.decode_states(content.replace(b'"producers":[[', b'"producers":[[1,', 1) + b"}")
