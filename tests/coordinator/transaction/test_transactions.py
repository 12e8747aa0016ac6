"""Transactions as clients see them: from the producer id to the markers."""

from __future__ import annotations

import pytest

from klog.coordinator.transactions.values import NO_PRODUCER, Producer
from klog.protocol.error_codes import ErrorCode
from tests.coordinator.transaction.play import FIRST_PRODUCER_ID, A, B, Play

NONE = ErrorCode.NONE


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_is_decided_then_marked_then_complete(commit: bool) -> None:
    play = Play()
    producer = play.producer()
    assert producer == Producer(FIRST_PRODUCER_ID, 0)
    assert play.add(producer, A).error is NONE
    assert play.add(producer, B).error is NONE
    assert play.state() == "Ongoing"
    assert play.end(producer, commit=commit).error is NONE
    word = "Commit" if commit else "Abort"
    assert play.state() == f"Prepare{word}"
    ((wanted, _),) = play.markers.sent
    assert wanted.partitions == {A, B}
    assert wanted.marker == (producer, 0, commit)
    play.markers.write_all()
    assert play.state() == f"Complete{word}"
    assert play.init(NO_PRODUCER).value.producer == Producer(FIRST_PRODUCER_ID, 1)
