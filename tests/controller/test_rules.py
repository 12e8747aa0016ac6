"""The pure rules: which replica leads, and which ISR changes are accepted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.controller.alter_partition import check
from klog.controller.leader_selection import (
    Choice,
    for_controlled_shutdown,
    for_new,
    for_offline,
    for_preferred,
    for_reassigned,
)
from klog.metadata.values import LeaderAndIsr, LeaderRecoveryState
from klog.protocol.error_codes import ErrorCode

_brokers = st.integers(0, 6)
_sets = st.sets(_brokers)
_assignments = st.lists(_brokers, min_size=1, max_size=5, unique=True).map(tuple)


def live(*broker_ids: int):
    return set(broker_ids).__contains__


def test_a_new_partition_is_led_by_its_first_live_replica() -> None:
    assert for_new((1, 2, 3), live(2, 3)) == Choice(2, (2, 3))
    assert for_new((1, 2), live()) is None


def test_an_offline_partition_is_led_by_the_first_live_one_in_sync() -> None:
    assert for_offline((1, 2, 3), (3, 2), live(2, 3), allow_unclean=False) == Choice(2, (3, 2))
    assert for_offline((1, 2, 3), (1, 3), live(2, 3), allow_unclean=True) == Choice(3, (3,))


def test_an_unclean_leader_is_alone_in_sync() -> None:
    assert for_offline((1, 2, 3), (1,), live(2, 3), allow_unclean=False) is None
    assert for_offline((1, 2, 3), (1,), live(3, 2), allow_unclean=True) == Choice(2, (2,), unclean=True)
    assert for_offline((1, 2), (1,), live(), allow_unclean=True) is None


def test_the_preferred_replica_leads_only_when_it_is_live_and_in_sync() -> None:
    assert for_preferred((1, 2), (2, 1), live(1, 2)) == Choice(1, (2, 1))
    assert for_preferred((1, 2), (2,), live(1, 2)) is None
    assert for_preferred((1, 2), (1, 2), live(2)) is None


def test_a_reassigned_partition_is_led_by_one_of_its_target() -> None:
    assert for_reassigned((3, 4), (1, 4), live(1, 3, 4)) == Choice(4, (1, 4))
    assert for_reassigned((3,), (1,), live(1, 3)) is None


def test_a_broker_that_shuts_down_loses_leadership_and_leaves_the_isr() -> None:
    assert for_controlled_shutdown((1, 2, 3), (1, 2, 3), live(1, 2, 3), live(1)) == Choice(2, (2, 3))
    assert for_controlled_shutdown((1, 2), (1,), live(1, 2), live(1)) is None


@given(_assignments, _sets, _sets, st.booleans())
def test_a_clean_leader_was_in_sync_and_is_alive(
    assignment: tuple[int, ...], in_sync: set[int], alive: set[int], unclean: bool
) -> None:
    isr = tuple(each for each in assignment if each in in_sync)
    choice = for_offline(assignment, isr, alive.__contains__, allow_unclean=unclean)
    clean = [each for each in assignment if each in isr and each in alive]
    if choice is None:
        assert not clean
        assert not (unclean and alive.intersection(assignment))
    else:
        assert choice.leader in choice.isr
        assert set(choice.isr) <= alive
        assert choice.unclean == (not clean)
        assert choice.unclean or set(choice.isr) <= set(isr)


CURRENT = LeaderAndIsr(1, 5, (1, 2), partition_epoch=7)


@pytest.mark.parametrize(
    ("wanted", "verdict"),
    [
        (replace(CURRENT, isr=(1,)), None),
        (replace(CURRENT, isr=(1, 2, 3)), None),
        (replace(CURRENT, isr=(1,), partition_epoch=8), ErrorCode.NOT_CONTROLLER),
        (replace(CURRENT, isr=(1,), leader_epoch=6), ErrorCode.NOT_CONTROLLER),
        (replace(CURRENT, isr=(1,), leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (CURRENT, ErrorCode.NONE),
        (replace(CURRENT, partition_epoch=6), ErrorCode.NONE),
        (replace(CURRENT, isr=(1,), partition_epoch=6), ErrorCode.INVALID_UPDATE_VERSION),
        (replace(CURRENT, recovery_state=LeaderRecoveryState.RECOVERING), ErrorCode.INVALID_REQUEST),
        (
            replace(CURRENT, isr=(1,), recovery_state=LeaderRecoveryState.RECOVERING),
            ErrorCode.INVALID_REQUEST,
        ),
        (replace(CURRENT, isr=(1, 9)), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_which_isr_changes_are_accepted(wanted: LeaderAndIsr, verdict: ErrorCode | None) -> None:
    assert check(CURRENT, wanted, live(1, 2, 3), 3) is verdict


def test_a_leader_reports_that_it_has_recovered() -> None:
    recovering = LeaderAndIsr(1, 5, (1,), LeaderRecoveryState.RECOVERING)
    recovered = replace(recovering, recovery_state=LeaderRecoveryState.RECOVERED)
    assert check(recovering, recovered, live(1), 3) is None
    assert check(recovering, replace(recovering, isr=(1, 2)), live(1, 2), 3) is ErrorCode.INVALID_REQUEST


def test_dead_replicas_have_another_error_code_in_old_versions() -> None:
    wanted = replace(CURRENT, isr=(1, 9))
    assert check(CURRENT, wanted, live(1, 2), 1) is ErrorCode.OPERATION_NOT_ATTEMPTED
