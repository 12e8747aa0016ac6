"""No collection runs while much is loaded, and what was loaded is not looked at later."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from klog.jobs.garbage import without_collections


@pytest.fixture(autouse=True)
def unfrozen() -> Iterator[None]:
    yield
    gc.enable()
    gc.unfreeze()


def test_collections_are_off_meanwhile() -> None:
    with without_collections():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_they_stay_off_if_they_were() -> None:
    gc.disable()
    with without_collections():
        pass
    assert not gc.isenabled()


def test_they_are_on_again_after_a_failure() -> None:
    with pytest.raises(ValueError, match="x"), without_collections():
        raise ValueError("x")
    assert gc.isenabled()


@pytest.mark.parametrize(("count", "frozen"), [(10, False), (40_000, True)])
def test_many_objects_are_kept_out_of_later_collections(count: int, frozen: bool) -> None:
    gc.collect()
    before = gc.get_freeze_count()
    with without_collections():
        made = [[number] for number in range(count)]
    assert (gc.get_freeze_count() - before >= count) == frozen
    assert len(made) == count
