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


def test_a_quick_module_without_a_test_of_real_kafka_is_not_imported_for_the_rest() -> None:
    assert tiers.has_none(tiers.REST, tiers.TESTS / "formats" / "test_layout.py")
    assert not tiers.has_none(tiers.REST, tiers.TESTS / "config" / "test_against_kafka.py")
    assert not tiers.has_none(tiers.REST, tiers.TESTS / "swap" / "test_swap.py")


def test_a_module_whose_conftest_marks_tests_is_imported_for_the_rest() -> None:
    module = tiers.TESTS / "metadata" / "test_znodes.py"
    assert "mark.kafka" not in module.read_text()
    assert not tiers.has_none(tiers.REST, module)


@pytest.mark.parametrize("tier", tiers.TIERS)
def test_no_directory_is_without_tests_of_the_rest(tier: str) -> None:
    assert tiers.has_none(tier, tiers.TESTS / "swap") == (tier == tiers.QUICK)
    assert not tiers.has_none(tier, tiers.TESTS / "formats")
