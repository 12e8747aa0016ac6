"""Which backups and objects a prune removes, and that what it keeps can still be restored."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.backup.prune import GRACE_MS, Rules, checked_grace, plan_prune, prune
from klog.backup.verify import VerifyOptions, verify
from klog.formats.errors import FormatError, MissingInputError, StorageError, UsageError
from tests.backup.repositories import Backups, log_files
from tests.export.logs import Log, batch, replica, write_segment

DAY_MS = 86_400_000
NOON_MS = int(datetime(2026, 11, 24, 12, tzinfo=UTC).timestamp() * 1000)


def at(*days: float) -> list[tuple[str, int]]:
    """Backups that began so many days before a Tuesday's noon, the oldest first."""
    return [(f"{day}", NOON_MS - int(day * DAY_MS)) for day in sorted(days, reverse=True)]


def test_the_newest_is_always_kept() -> None:
    assert Rules(before_ms=NOON_MS + DAY_MS).kept(at(0, 1, 2)) == {"0"}


def test_the_last_ones_are_kept() -> None:
    assert Rules(last=2).kept(at(0, 1, 2)) == {"0", "1"}


def test_of_each_day_with_a_backup_the_newest_is_kept() -> None:
    assert Rules(daily=2).kept(at(0, 0.1, 3, 3.1, 4)) == {"0", "3"}


def test_of_each_week_the_newest_is_kept() -> None:
    assert Rules(weekly=2).kept(at(0, 1, 2, 3, 8, 15)) == {"0", "2"}  # 2 days before is Sunday


def test_rules_add_up_and_later_backups_stay() -> None:
    assert Rules(last=1, before_ms=NOON_MS - DAY_MS).kept(at(0, 0.5, 1, 2)) == {"0", "0.5", "1"}


def test_without_a_rule_nothing_is_removed() -> None:
    with pytest.raises(UsageError, match="nothing says which backups to keep"):
        Rules().kept(at(0, 1))


@given(
    days=st.lists(st.floats(0, 400), max_size=30, unique=True),
    last=st.none() | st.integers(1, 9),
    daily=st.none() | st.integers(1, 9),
    weekly=st.integers(1, 9),
)
def test_more_rules_never_keep_less(days, last, daily, weekly) -> None:
    backups = at(*days)
    some = Rules(weekly=weekly).kept(backups)
    assert some <= Rules(last, daily, weekly).kept(backups) <= {identifier for identifier, _ in backups}


@pytest.fixture
def history(backups: Backups, logs: Path) -> dict[str, dict[str, bytes]]:
    """Six daily backups of a log that grows, rolls and loses its first segments; their contents by id."""
    log = Log(logs / "orders-0")
    contents = {}
    for number in range(6):
        log.append(*(batch(20 * number + 5 * each, 5) for each in range(4)))
        log.write()
        log.roll()
        if number > 2:
            (logs / "orders-0" / f"{20 * (number - 3):020d}.log").unlink()
            log.segments[number - 3].clear()
        backups.now_ms += DAY_MS
        contents[backups.run(logs).manifest.id] = log_files(logs / "orders-0")
    return contents


def test_what_is_kept_can_be_restored_and_nothing_else_stays(backups: Backups, history) -> None:
    oldest, *_, newest = history
    repository = backups.repository
    plan = plan_prune(repository, Rules(last=1), backups.now_ms + 2 * GRACE_MS)

    prune(repository, plan, lambda _name: None)

    assert backups.repository.ids() == [newest]
    assert backups.segments("orders") == history[newest]
    assert not verify(backups.repository, [newest], VerifyOptions()).findings
    assert len(backups.objects()) == len(history[newest])
    with pytest.raises(MissingInputError, match="there is no backup"):
        backups.repository.manifest(oldest)


def test_each_subset_that_is_kept_can_be_restored(backups: Backups, history) -> None:
    kept = sorted(history)[1::2]
    repository = backups.repository
    now_ms = backups.now_ms + 2 * GRACE_MS
    plan = plan_prune(repository, Rules(daily=6), now_ms)
    assert not plan.removed
    assert not plan.objects
    for identifier in sorted(history)[::2]:  # as an older klog with other rules may have done it
        repository.store.remove(f"manifests/{_day(identifier)}/{identifier}.json")

    prune(repository, plan_prune(repository, Rules(daily=6), now_ms), lambda _name: None)

    assert {each: backups.segments("orders", 0, each) for each in kept} == {
        each: history[each] for each in kept
    }
    assert not verify(backups.repository, kept, VerifyOptions()).findings


def _day(identifier: str) -> str:
    return f"{identifier[:4]}-{identifier[4:6]}-{identifier[6:8]}"


def test_a_plan_changes_nothing(backups: Backups, history) -> None:
    before = backups.objects("")
    plan = plan_prune(backups.repository, Rules(last=1), backups.now_ms + 2 * GRACE_MS)
    assert len(plan.removed) == 5
    assert plan.freed_bytes > 0
    assert backups.objects("") == before


def test_young_backups_and_objects_stay(backups: Backups, history) -> None:
    plan = plan_prune(backups.repository, Rules(last=1), backups.now_ms, grace_ms=3 * DAY_MS + DAY_MS // 2)
    assert len(plan.removed) == 1
    assert len(plan.young) == 4  # with the newest of before: a run that began then may build on it


def test_what_was_written_anew_after_the_plan_stays(backups: Backups, history) -> None:
    repository = backups.repository
    name = "data/orders-0/left.log"
    path = Path(repository.store.path_of(name))
    repository.store.put(name, b"x")
    plan = plan_prune(repository, Rules(last=1), backups.now_ms + 2 * GRACE_MS)
    assert name in plan.objects
    later_s = plan.since_ms // 1000 + 1
    os.utime(path, (later_s, later_s))

    prune(repository, plan, lambda _name: None)

    assert path.exists()


def test_objects_of_killed_runs_go_when_they_are_old(backups: Backups, history) -> None:
    store = backups.repository.store
    store.put("data/orders-0/left.log", b"x")
    store.put("states/20260101T000000000Z-abcd-0000.json.gz", b"x")
    (Path(backups.place) / "_klog" / "unfinished").mkdir(parents=True, exist_ok=True)
    (Path(backups.place) / "_klog" / "unfinished" / "1.tmp").write_bytes(b"x")

    plan = plan_prune(backups.repository, Rules(daily=10), backups.now_ms + 2 * GRACE_MS)

    assert set(plan.objects) == {
        "data/orders-0/left.log",
        "states/20260101T000000000Z-abcd-0000.json.gz",
        "_klog/unfinished/1.tmp",
    }


def test_files_of_others_are_never_removed(backups: Backups, history) -> None:
    (Path(backups.place) / "README.txt").write_text("our backups")

    plan = plan_prune(backups.repository, Rules(last=1), backups.now_ms + 2 * GRACE_MS)

    assert not {"README.txt", "klog-backup.json"} & set(plan.objects)


def test_nothing_is_removed_if_a_backup_cannot_be_read(backups: Backups, history) -> None:
    newest = max(history)
    (Path(backups.place) / "manifests" / _day(newest) / f"{newest}.json").write_text("{")
    with pytest.raises(FormatError, match="is not JSON"):
        plan_prune(backups.repository, Rules(last=1), backups.now_ms)


def test_a_run_does_not_end_if_its_base_was_pruned(backups: Backups, logs: Path, monkeypatch) -> None:
    replica(logs / "orders-0", [batch(0, 5)])
    first = backups.run(logs).manifest.id
    write_segment(logs / "orders-0", [batch(5, 5)])

    def pruned_meanwhile(_bytes: int) -> None:
        backups.repository.store.remove(f"manifests/{_day(first)}/{first}.json")

    with pytest.raises(StorageError, match=f"the backup {first}, on which this one builds, was pruned"):
        backups.run(logs, on_total=pruned_meanwhile)


def test_a_short_grace_time_needs_a_promise() -> None:
    assert checked_grace(0, alone=True) == 0
    with pytest.raises(UsageError, match="may remove what a run is just using"):
        checked_grace(3_600_000, alone=False)
