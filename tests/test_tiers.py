"""The tiers hold every test once: quick and rest together are full."""

from __future__ import annotations

import pytest

from tests import tiers

FILES = (tiers.TESTS / "formats" / "test_layout.py", tiers.TESTS / "swap" / "test_swap.py")


@pytest.mark.parametrize("path", FILES)
@pytest.mark.parametrize("markers", [[], ["kafka"], ["slow"]])
def test_a_test_is_either_quick_or_rest(path, markers) -> None:
    assert tiers.is_selected(tiers.FULL, path, markers)
    assert tiers.is_selected(tiers.QUICK, path, markers) != tiers.is_selected(tiers.REST, path, markers)


def test_the_quick_tier_needs_no_real_kafka() -> None:
    assert not tiers.is_selected(tiers.QUICK, FILES[0], ["kafka"])
    assert tiers.is_selected(tiers.QUICK, FILES[0], [])


def test_what_is_left_out_exists() -> None:
    missing = [name for name in tiers.LEFT_OUT if not list(tiers.TESTS.glob(name))]
    assert not missing


def test_other_directories_are_not_left_out_for_a_name_that_begins_alike() -> None:
    assert not tiers.is_left_out(tiers.TESTS / "clientside" / "test_any.py")
    assert tiers.is_left_out(tiers.TESTS / "clients" / "test_any.py")
    assert tiers.is_left_out(tiers.TESTS / "server" / "test_any.py")
    assert not tiers.is_left_out(tiers.TESTS / "server" / "handlers" / "test_any.py")


def test_the_note_says_how_to_run_the_rest() -> None:
    assert "--tier full" in tiers.left_out_note()
